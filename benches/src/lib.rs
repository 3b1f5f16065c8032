//! Benchmarks of Helenus. `peers/` compares the server with Apache Cassandra (`make bench`).
