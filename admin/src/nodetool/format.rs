//! Numbers, addresses and tables as nodetool prints them.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::members::address;

/// A number of bytes with at most two decimals, in the unit in which it is at least 1.
pub(super) fn file_size(count: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| count >> shift > 0) {
        None => format!("{count} bytes"),
        Some((shift, unit)) => {
            let amount = format!("{:.2}", count as f64 / (1_u64 << shift) as f64);
            format!("{} {unit}", amount.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

/// A number of bytes as a number, or for people.
pub(super) fn size(count: u64, is_readable: bool) -> String {
    if is_readable { file_size(count) } else { count.to_string() }
}

/// Columns as wide as their widest cells, with this between them. Rows may be of different lengths.
pub(super) fn table(rows: &[Vec<String>], delimiter: &str) -> String {
    tables(&[rows], delimiter).concat()
}

/// Several tables with columns of the same widths.
pub(super) fn tables(tables: &[&[Vec<String>]], delimiter: &str) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in tables.iter().copied().flatten() {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let cells = widths.iter().zip(row).map(|(&width, cell)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join(delimiter);
        format!("{}\n", line.trim_end())
    };
    tables.iter().map(|rows| rows.iter().map(line).collect()).collect()
}

/// Cells that end at the right of columns of this width.
pub(super) fn right(cells: &[&str], width: usize) -> String {
    cells.iter().fold(String::new(), |mut line, cell| {
        // Writing to a string does not fail.
        let _ = write!(line, "{cell:>width$}");
        line
    })
}

/// How addresses of members are shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Addresses {
    pub have_ports: bool,
    /// Names are looked up for them.
    pub are_names: bool,
}

impl Addresses {
    /// An address with a port as it is shown.
    pub fn text(self, shown: &str) -> String {
        let host = address(shown, false);
        match (self.are_names, host.parse::<IpAddr>()) {
            (true, Ok(ip)) => {
                // As in nodetool, an address without a name stays an address.
                let name = dns_lookup::lookup_addr(&ip).unwrap_or_else(|_| host.to_owned());
                match shown.rsplit_once(':') {
                    // An address of IPv6 keeps its brackets.
                    Some(_) if self.have_ports && name.parse::<IpAddr>().is_ok() => shown.to_owned(),
                    Some((_, port)) if self.have_ports => format!("{name}:{port}"),
                    _ => name,
                }
            }
            _ => address(shown, self.have_ports).to_owned(),
        }
    }

    /// Addresses in brackets.
    pub fn list(self, addresses: &[String]) -> String {
        let texts: Vec<String> = addresses.iter().map(|address| self.text(address)).collect();
        format!("[{}]", texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::row;

    #[test]
    fn sizes_have_at_most_two_decimals() {
        assert_eq!(file_size(0), "0 bytes");
        assert_eq!(file_size(1_023), "1023 bytes");
        assert_eq!(file_size(1_024), "1 KiB");
        assert_eq!(file_size(1_536), "1.5 KiB");
        assert_eq!(file_size(106_158), "103.67 KiB");
        assert_eq!(file_size(5 << 40), "5 TiB");
        assert_eq!(size(1_536, false), "1536");
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = [row(&["a", "bb"]), row(&["ccc"]), row(&["", "d", "e"])];
        assert_eq!(table(&rows, " "), "a   bb\nccc\n    d  e\n");
    }

    #[test]
    fn addresses_have_no_ports_unless_they_are_asked_for() {
        let shown = Addresses::default();
        assert_eq!(shown.text("10.0.0.1:7000"), "10.0.0.1");
        assert_eq!(shown.list(&["10.0.0.1:7000".to_owned(), "b:7000".to_owned()]), "[10.0.0.1, b]");
        let shown = Addresses { have_ports: true, are_names: true };
        assert_eq!(shown.text("node:7000"), "node:7000");
        assert!(shown.text("127.0.0.1:7000").ends_with(":7000"));
        assert_eq!(Addresses::default().text("[fd00::1]:7000"), "fd00::1");
        assert_eq!(shown.text("[2001:db8::dead]:7000"), "[2001:db8::dead]:7000");
    }
}
