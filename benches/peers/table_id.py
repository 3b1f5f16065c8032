"""Prints the id of a table of keyspace `bench` as 32 hex digits: table_id.py ADDRESS:PORT TABLE, and latte's options for the connection."""

import argparse
import ssl

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("address")
parser.add_argument("table")
parser.add_argument("--user")
parser.add_argument("--password")
parser.add_argument("--ssl", action="store_true")
parser.add_argument("--ssl-ca")
options = parser.parse_args()
host, port = options.address.rsplit(":", 1)
login = PlainTextAuthProvider(options.user, options.password) if options.user else None
context = ssl.create_default_context(cafile=options.ssl_ca) if options.ssl else None
if context:
    context.check_hostname = False
cluster = Cluster([host], port=int(port), auth_provider=login, ssl_context=context)
query = "SELECT id FROM system_schema.tables WHERE keyspace_name = 'bench' AND table_name = %s"
print(cluster.connect().execute(query, [options.table]).one().id.hex)
cluster.shutdown()
