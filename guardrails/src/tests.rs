//! The kinds of guardrails, and their texts. `tests/cql/guardrails.txt` has the results of statements.

use super::*;
use helenus_query::error::RequestError;
use helenus_query::functions::CallContext;
use helenus_query::plan::term::Bindings;
use helenus_query::plan::{Plan, plan};
use helenus_query::schema::test_catalog::catalog_of;

fn texts(
    check: impl FnOnce(&mut Vec<String>) -> helenus_query::error::Result<()>,
) -> (Vec<String>, Option<String>) {
    let mut warnings = Vec::new();
    let error = check(&mut warnings).err().map(|error| {
        assert!(is_violation(&error), "{error}");
        error.to_string()
    });
    (warnings, error)
}

#[test]
fn a_threshold_warns_and_then_refuses() {
    let mut tables = Guardrails::default().tables;
    assert!(!tables.is_set());
    assert_eq!(texts(|warnings| tables.guard(u64::MAX, "t", warnings)), (vec![], None));
    tables.warn = Some(2);
    tables.fail = Some(4);
    assert!(tables.is_set());
    assert_eq!(texts(|warnings| tables.guard(2, "t", warnings)), (vec![], None));
    let warning = "Guardrail tables violated: Creating table t, current number of tables 3 exceeds warning threshold of 2.";
    assert_eq!(texts(|warnings| tables.guard(3, "t", warnings)), (vec![warning.to_owned()], None));
    let failure =
        "Guardrail tables violated: Cannot have more than 4 tables, aborting the creation of table t";
    let expected = (vec![failure.to_owned()], Some(failure.to_owned()));
    assert_eq!(texts(|warnings| tables.guard(5, "t", warnings)), expected);
}

#[test]
fn a_minimum_is_violated_from_below() {
    let mut minimum = Guardrails::default().minimum_replication_factor;
    minimum.warn = Some(3);
    minimum.fail = Some(2);
    assert_eq!(texts(|warnings| minimum.guard(3, "k", warnings)), (vec![], None));
    let warning = "Guardrail minimum_replication_factor violated: The keyspace k has a replication factor of 2, below the warning threshold of 3.";
    assert_eq!(texts(|warnings| minimum.guard(2, "k", warnings)), (vec![warning.to_owned()], None));
    let failure = "Guardrail minimum_replication_factor violated: The keyspace k has a replication factor of 1, below the failure threshold of 2.";
    assert_eq!(texts(|warnings| minimum.guard(1, "k", warnings)).1, Some(failure.to_owned()));
}

#[test]
fn a_feature_is_allowed_warned_of_or_refused() {
    let mut flag = Guardrails::default().allow_filtering;
    assert_eq!(texts(|warnings| flag.guard(warnings)), (vec![], None));
    flag.is_warned = true;
    let reason =
        "ALLOW FILTERING can potentially visit all the data in the table and have unpredictable performance.";
    let warning = format!(
        "Guardrail allow_filtering violated: Querying with ALLOW FILTERING is not recommended. {reason}"
    );
    assert_eq!(texts(|warnings| flag.guard(warnings)), (vec![warning], None));
    flag.is_enabled = false;
    let failure =
        format!("Guardrail allow_filtering violated: Querying with ALLOW FILTERING is not allowed. {reason}");
    assert_eq!(texts(|warnings| flag.guard(warnings)).1, Some(failure));
}

#[test]
fn values_are_warned_of_ignored_or_refused() {
    let mut values = Guardrails::default().table_properties;
    let given = ["cdc", "comment", "caching"].into_iter().collect();
    assert!(values.guard(&given, &mut Vec::new()).unwrap().is_empty());
    values.warned = ["cdc".to_owned(), "comment".to_owned()].into();
    values.ignored = ["caching".to_owned()].into();
    let mut warnings = Vec::new();
    assert_eq!(values.guard(&given, &mut warnings).unwrap(), ["caching"].into_iter().collect());
    assert_eq!(
        warnings,
        [
            "Guardrail table_properties violated: Ignoring provided values [caching] as they are not supported for Table Properties (ignored values are: [caching])",
            "Guardrail table_properties violated: Provided values [cdc, comment] are not recommended for Table Properties (warned values are: [cdc, comment])",
        ]
    );
    values.disallowed = ["cdc".to_owned()].into();
    let failure = "Guardrail table_properties violated: Provided values [cdc] are not allowed for Table Properties (disallowed values are: [cdc])";
    assert_eq!(texts(|warnings| values.guard(&given, warnings).map(|_| ())).1, Some(failure.to_owned()));
}

#[test]
fn the_same_warning_comes_once_and_warnings_are_bounded() {
    let mut value = Guardrails::default().column_value_size;
    value.warn = Some(1);
    let (warnings, _) = texts(|warnings| (0..10).try_for_each(|_| value.guard(5, "c", warnings)));
    assert_eq!(warnings.len(), 1);
    let (warnings, _) = texts(|warnings| (2..10_000).try_for_each(|size| value.guard(size, "c", warnings)));
    assert_eq!(warnings.len(), 100);
}

#[test]
fn other_refusals_are_no_violations() {
    assert!(!is_violation(&RequestError::invalid("Unknown column")));
}

#[test]
fn filters_of_several_mutable_columns_are_an_intersection_where_replicas_are_compared() {
    let catalog = catalog_of(&[
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
        "CREATE TABLE k.t (p int, c int, a int, b int, i int, j int, s int static, PRIMARY KEY (p, c))",
        "CREATE INDEX ON k.t (i) USING 'sai'",
        "CREATE INDEX ON k.t (j) USING 'sai'",
    ]);
    let mut guardrails = Guardrails::default();
    guardrails.intersect_filtering_query.is_warned = true;
    let warnings_of = |relations: &str, compares_replicas: bool| {
        let text = format!("SELECT * FROM k.t WHERE {relations} ALLOW FILTERING");
        let statement = cql_lite::syntax::parse(&text).unwrap();
        let Plan::Select(plan) = plan(statement, &catalog.catalog, None).unwrap().plan else {
            panic!("{text} is no SELECT")
        };
        let bindings = Bindings { values: &[], call: &CallContext::at(0) };
        let mut warnings = Vec::new();
        guardrails.check_select(&plan, &bindings, None, compares_replicas, &mut warnings).unwrap();
        warnings
    };
    let warning = "Guardrail intersect_filtering_query violated: Filtering query with intersection on mutable columns at consistency level requiring coordinator reconciliation is not recommended. Filtering queries involving an intersection on multiple mutable (i.e. non-key) columns over unrepaired data at read consistency levels that would require coordinator reconciliation may violate the guarantees of those consistency levels.";
    for relations in ["a = 1 AND b = 1", "p = 1 AND a = 1 AND b > 1", "a = 1 AND i = 1", "s = 1 AND c = 1"] {
        assert_eq!(warnings_of(relations, true), [warning], "{relations}");
        assert_eq!(warnings_of(relations, false), Vec::<String>::new(), "{relations}");
    }
    for relations in ["a = 1", "a > 1 AND a < 5", "c = 1 AND a = 1", "i = 1 AND j = 1", "p = 1 AND c = 1"] {
        assert_eq!(warnings_of(relations, true), Vec::<String>::new(), "{relations}");
    }
}
