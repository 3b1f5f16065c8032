//! Whole-system tests of Helenus. What there is stands in `tests/README.md`; this library holds nothing itself.
