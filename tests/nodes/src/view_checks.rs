//! CHECK PROJECTION finds what is wrong with a view, and repairs it.

use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_projector::internal_statement::{InternalStatement, OwnedValue};

use super::cluster::{Cluster, with_views};

const TABLES: [&str; 4] = [
    "CREATE TABLE three.users (id int PRIMARY KEY, city int, age int)",
    "CREATE MATERIALIZED VIEW three.by_city AS SELECT * FROM three.users WHERE city IS NOT NULL AND id IS NOT NULL PRIMARY KEY (city, id)",
    "CREATE TABLE three.sales (shop int, day int, n int, amount int, PRIMARY KEY (shop, day, n))",
    "CREATE PROJECTION three.sums AS SELECT shop, day, count(*) AS sales, sum(amount) AS total FROM three.sales GROUP BY shop, day PRIMARY KEY (shop, day)",
];

/// Writes what clients may not write.
async fn damage(cluster: &Cluster, text: &str, values: &[i32]) {
    let (machine, text) = (cluster.machine(0), text.to_owned());
    let values: Vec<OwnedValue> = values.iter().map(|value| Some(value.to_be_bytes().to_vec())).collect();
    let context = machine.context(0).unwrap();
    let write = async move {
        let statement = InternalStatement::new(text);
        statement.write(&context, &values, Consistency::Quorum, None).await.map(drop)
    };
    machine.run(write).await.unwrap().unwrap();
}

/// Lets so much time pass that what was written before is not carried out again: it would mend the damage.
async fn settle(cluster: &Cluster) {
    cluster.pass(Duration::from_secs(20)).await;
}

/// The counts of a check: rows, units, missing, different, orphaned, repaired.
async fn check(cluster: &Cluster, text: &str) -> [i64; 6] {
    let answer = cluster.query(0, text, Consistency::One).await.unwrap();
    let names = ["view", "rows", "units", "missing", "different", "orphaned", "repaired", "checked_at"];
    assert_eq!(answer.columns, names);
    let [row] = &answer.rows[..] else { panic!("{} rows", answer.rows.len()) };
    std::array::from_fn(|place| i64::from_be_bytes(row[place + 1].as_deref().unwrap().try_into().unwrap()))
}

async fn count(cluster: &Cluster, query: &str) -> usize {
    cluster.query(0, query, Consistency::Quorum).await.unwrap().rows.len()
}

#[test]
fn rows_that_are_missing_different_or_of_nothing_are_found_and_repaired() {
    with_views(3, &TABLES, |cluster| async move {
        for id in 0..20 {
            let insert = format!("INSERT INTO three.users (id, city, age) VALUES ({id}, {}, {id})", id % 3);
            cluster.execute(0, &insert, Consistency::Quorum).await.unwrap();
        }
        cluster
            .execute(0, "INSERT INTO three.users (id, age) VALUES (100, 1)", Consistency::Quorum)
            .await
            .unwrap();
        assert_eq!(check(&cluster, "CHECK PROJECTION three.by_city").await, [20, 21, 0, 0, 0, 0]);
        settle(&cluster).await;
        damage(&cluster, "DELETE FROM three.by_city WHERE city = ? AND id = ?", &[0, 3]).await;
        damage(&cluster, "UPDATE three.by_city SET age = ? WHERE city = ? AND id = ?", &[77, 1, 4]).await;
        // A row of a unit that has another one, and a row of no unit.
        damage(&cluster, "INSERT INTO three.by_city (city, id, age) VALUES (?, ?, ?)", &[9, 5, 5]).await;
        damage(&cluster, "INSERT INTO three.by_city (city, id, age) VALUES (?, ?, ?)", &[9, 500, 5]).await;
        let faults = [21, 21, 1, 1, 2, 0];
        assert_eq!(check(&cluster, "CHECK PROJECTION three.by_city").await, faults);
        assert_eq!(check(&cluster, "CHECK PROJECTION three.by_city").await, faults, "nothing is changed");
        assert_eq!(check(&cluster, "CHECK PROJECTION three.by_city REPAIR").await, [21, 21, 1, 1, 2, 4]);
        assert_eq!(check(&cluster, "CHECK PROJECTION three.by_city").await, [20, 21, 0, 0, 0, 0]);
        assert_eq!(count(&cluster, "SELECT id FROM three.by_city WHERE city = 9").await, 0);
        assert_eq!(count(&cluster, "SELECT id FROM three.by_city WHERE city = 0").await, 7);
    });
}

#[test]
fn groups_are_compared_too() {
    with_views(3, &TABLES, |cluster| async move {
        for n in 0..24 {
            let insert = format!(
                "INSERT INTO three.sales (shop, day, n, amount) VALUES ({}, {}, {n}, 1)",
                n % 2,
                n % 3
            );
            cluster.execute(0, &insert, Consistency::Quorum).await.unwrap();
        }
        assert_eq!(check(&cluster, "CHECK PROJECTION three.sums").await, [6, 6, 0, 0, 0, 0]);
        settle(&cluster).await;
        damage(&cluster, "DELETE FROM three.sums WHERE shop = ? AND day = ?", &[0, 1]).await;
        // Where the view's row comes from is lost as well.
        damage(&cluster, "DELETE FROM three.\"sums$rows\" WHERE u0 = ? AND u1 = ?", &[0, 1]).await;
        damage(&cluster, "UPDATE three.sums SET total = ? WHERE shop = ? AND day = ?", &[77, 1, 1]).await;
        damage(&cluster, "INSERT INTO three.sums (shop, day, total) VALUES (?, ?, ?)", &[5, 5, 5]).await;
        assert_eq!(check(&cluster, "CHECK PROJECTION three.sums REPAIR").await, [6, 6, 1, 1, 1, 3]);
        assert_eq!(check(&cluster, "CHECK PROJECTION three.sums").await, [6, 6, 0, 0, 0, 0]);
    });
}

#[test]
fn in_a_view_with_a_cap_the_rows_that_it_keeps_are_judged() {
    const NEWEST: &str = "CREATE PROJECTION three.newest AS SELECT shop, n, day, amount FROM three.sales PRIMARY KEY (shop, n, day) \
                          WITH CLUSTERING ORDER BY (n DESC, day ASC) AND cap = 3";
    with_views(3, &[TABLES[2], NEWEST], |cluster| async move {
        for n in 0..10 {
            let insert = format!("INSERT INTO three.sales (shop, day, n, amount) VALUES (0, 0, {n}, 1)");
            cluster.execute(0, &insert, Consistency::Quorum).await.unwrap();
        }
        let right = [3, 10, 0, 0, 0, 0];
        assert_eq!(check(&cluster, "CHECK PROJECTION three.newest").await, right);
        settle(&cluster).await;
        // One before the last row is missing, whatever was evicted.
        damage(&cluster, "DELETE FROM three.newest WHERE shop = ? AND n = ? AND day = ?", &[0, 8, 0]).await;
        assert_eq!(check(&cluster, "CHECK PROJECTION three.newest REPAIR").await, [2, 10, 1, 0, 0, 1]);
        assert_eq!(check(&cluster, "CHECK PROJECTION three.newest").await, right);
        // Where no row is left, nothing says what was evicted.
        settle(&cluster).await;
        damage(&cluster, "DELETE FROM three.newest WHERE shop = ?", &[0]).await;
        assert_eq!(check(&cluster, "CHECK PROJECTION three.newest REPAIR").await[..3], [0, 10, 10]);
        assert_eq!(check(&cluster, "CHECK PROJECTION three.newest").await, right);
    });
}

#[test]
fn what_clients_write_meanwhile_is_no_fault() {
    with_views(3, &TABLES, |cluster| async move {
        for id in 0..300 {
            let insert = format!("INSERT INTO three.users (id, city, age) VALUES ({id}, {}, {id})", id % 3);
            cluster.execute(0, &insert, Consistency::Quorum).await.unwrap();
        }
        let checked = cluster.begin(1, "CHECK PROJECTION three.by_city REPAIR", Consistency::One);
        let mut written = 0;
        while !checked.is_finished() && written < 5_000 {
            let id = written % 300;
            let update = match written % 4 {
                0 => format!("DELETE FROM three.users WHERE id = {id}"),
                1 => format!("INSERT INTO three.users (id, city, age) VALUES ({id}, 1, 1) USING TTL 2"),
                _ => format!("UPDATE three.users SET city = {written}, age = {id} WHERE id = {id}"),
            };
            cluster.execute(0, &update, Consistency::Quorum).await.unwrap();
            written += 1;
        }
        let answer = checked.await.unwrap().unwrap();
        let faults =
            answer.rows[0][3..7].iter().map(|count| count.as_deref().unwrap().iter().any(|byte| *byte != 0));
        assert!(!faults.into_iter().any(|is_fault| is_fault), "{:?}", answer.rows[0]);
        assert_eq!(check(&cluster, "CHECK PROJECTION three.by_city").await[2..], [0; 4]);
    });
}
