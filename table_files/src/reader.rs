//! An open table: what of it is in memory, and reading the rest block by block.
//!
//! A reader is immutable and may be shared by threads; block caches belong to one thread and are handed in. Invariant: no byte is used
//! before the checksum over it was found right after it came from the disk.
//!
//! Loaded when a table is opened: statistics, range tombstones, the root of the index, and the checksums of the parts of filters.
//! Filters and the leaves of the index are loaded as well if there is memory for them ([`super::resident`]). Otherwise their parts are
//! read when they are needed, as data blocks are.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::cache::{
    BlockCache, BlockKey, BlockKind, BlockPart, BlockReading, BlockSource, MissingBlock, ReadPattern,
};
use super::error::TableError;
use super::filter::{Filter, KeyHash};
use super::filter_parts::{FilterPart, FilterParts, lines_bytes};
use super::format::{
    FOOTER_BYTES, Footer, FooterError, PARTS_SINCE_VERSION, POSITIONS_SINCE_VERSION, Section, VERSION,
    checksum_matches, read_block,
};
use super::heads::BlockData;
use super::index::{BlockHandle, LEAF_CHECKSUM_BYTES};
use super::range_tombstones::RangeTombstones;
use super::resident::{Reservation, ResidentParts};
use super::statistics::TableStatistics;
use super::table_file::TableFile;
use crate::invariant::broken;
use crate::io::{CompleteFile, Disk, yield_now};

/// An open table.
pub struct TableReader {
    id: u64,
    pub(super) file: TableFile,
    pub(super) footer: Footer,
    statistics: TableStatistics,
    partition_filter: OpenFilter,
    /// Absent without filters, and where every partition has one row: then the partition filter has the same information.
    row_filter: OpenFilter,
    pub(super) index_root: Box<[u8]>,
    /// `None`: they are read one by one.
    pub(super) index_leaves: Option<Box<[u8]>>,
    range_tombstones: Box<[u8]>,
    /// Of filters and leaves.
    reservation: Reservation,
}

/// A filter of an open table.
enum OpenFilter {
    /// Every key may be in the table.
    Absent,
    Resident(Filter),
    /// Its parts are read one by one.
    InParts(FilterParts),
}

impl fmt::Debug for TableReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TableReader").field("path", &self.file.path).finish_non_exhaustive()
    }
}

impl TableReader {
    /// Whether the file is of the version that a writer would give it now.
    pub fn is_of_present_version(&self) -> bool {
        self.footer.version == VERSION
    }

    /// The version of the file.
    pub fn version(&self) -> u32 {
        self.footer.version
    }

    /// Opens a table with all filters and its whole index in memory. `id` must be unique among the tables that share a block cache.
    pub async fn open_file(disk: &dyn Disk, path: &Path, id: u64) -> Result<Arc<Self>, TableError> {
        Self::open_file_within(disk, path, id, &ResidentParts::unlimited()).await
    }

    /// As [`TableReader::open_file`], with the filters and leaves in memory for which there is room in `resident`.
    pub async fn open_file_within(
        disk: &dyn Disk,
        path: &Path,
        id: u64,
        resident: &ResidentParts,
    ) -> Result<Arc<Self>, TableError> {
        Self::open_within(disk.open_complete(path).await?, path, id, resident).map(Arc::new)
    }

    /// As [`TableReader::open_file`], for a file that is open. `path` is for error messages.
    pub fn open(file: Arc<dyn CompleteFile>, path: &Path, id: u64) -> Result<Self, TableError> {
        Self::open_within(file, path, id, &ResidentParts::unlimited())
    }

    /// As [`TableReader::open_file_within`], for a file that is open.
    pub fn open_within(
        file: Arc<dyn CompleteFile>,
        path: &Path,
        id: u64,
        resident: &ResidentParts,
    ) -> Result<Self, TableError> {
        let length = file.length();
        let file = TableFile { path: path.to_path_buf(), file };
        let tail_bytes = length.min(FOOTER_BYTES as u64);
        let tail = file.read(length - tail_bytes, tail_bytes)?;
        let footer = Footer::read(&tail, length).map_err(|error| match error {
            FooterError::Damaged(reason) => file.damaged(length, reason),
            FooterError::Version(version) => {
                TableError::UnsupportedVersion { path: path.to_path_buf(), version, newest: VERSION }
            }
        })?;
        let statistics = file.load_section(&footer.statistics)?;
        let statistics = TableStatistics::read(&statistics, footer.version >= POSITIONS_SINCE_VERSION)
            .map_err(|_| file.damaged(footer.statistics.offset, "the statistics are malformed"))?;
        let range_tombstones = file.load_section(&footer.range_tombstones)?;
        if RangeTombstones::new(&range_tombstones).is_none_or(|range_tombstones| !range_tombstones.is_valid())
        {
            return Err(file.damaged(footer.range_tombstones.offset, "the range tombstones are malformed"));
        }
        let index_root = file.load_section(&footer.index_root)?;
        let mut reservation = resident.reserve();
        let sections = [&footer.partition_filter, &footer.row_filter, &footer.index_leaves];
        if let Some(section) = sections.iter().find(|section| section.length > length) {
            return Err(file.damaged(section.offset, "a part of the table lies outside the file"));
        }
        let has_parts = footer.version >= PARTS_SINCE_VERSION;
        let all_bytes = sections.iter().map(|section| section.length).sum();
        let are_few = resident.are_few(all_bytes);
        let mut is_resident = |section: &Section| {
            if !has_parts || are_few {
                reservation.take(section.length);
                return true;
            }
            reservation.grow(section.length)
        };
        let mut filter = |section: &Section| match (has_parts, is_resident(section)) {
            (false, _) => open_whole_filter(&file, section),
            (true, is_resident) => open_filter(&file, section, is_resident),
        };
        let (partition_filter, row_filter) = (filter(&footer.partition_filter)?, filter(&footer.row_filter)?);
        let index_leaves = if is_resident(&footer.index_leaves) {
            Some(file.load_section(&footer.index_leaves)?)
        } else {
            None
        };
        Ok(Self {
            id,
            file,
            footer,
            statistics,
            partition_filter,
            row_filter,
            index_root,
            index_leaves,
            range_tombstones,
            reservation,
        })
    }

    pub(super) fn damaged(&self, offset: u64, reason: &'static str) -> TableError {
        self.file.damaged(offset, reason)
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.footer.file_bytes
    }

    /// A checksum of what the file contains.
    pub fn checksum(&self) -> u64 {
        let Footer { index_leaves, index_root, row_filter, partition_filter, statistics, version, .. } =
            &self.footer;
        // The checksum of leaves that have their own ones behind them says nothing: it hardly depends on them.
        let content = if *version >= PARTS_SINCE_VERSION {
            index_root.crc32 ^ row_filter.crc32.rotate_left(8) ^ partition_filter.crc32.rotate_left(16)
        } else {
            index_leaves.crc32
        };
        u64::from(content) << 32 | u64::from(statistics.crc32)
    }

    pub fn statistics(&self) -> &TableStatistics {
        &self.statistics
    }

    /// Bytes of the filters in the file.
    pub fn filter_bytes(&self) -> u64 {
        self.footer.partition_filter.length + self.footer.row_filter.length
    }

    /// Bytes of the index in the file.
    pub fn index_bytes(&self) -> u64 {
        self.footer.index_leaves.length + self.footer.index_root.length
    }

    /// Memory of filters and of leaves of the index, which counts in [`ResidentParts`].
    pub fn resident_bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    /// Whether some of these are not in memory, and there is room for all of them now.
    pub fn has_room_for_parts(&self, resident: &ResidentParts) -> bool {
        let all_bytes = self.filter_bytes() + self.footer.index_leaves.length;
        self.resident_bytes() < all_bytes && resident.has_room(all_bytes)
    }

    /// Memory of all that is loaded.
    pub fn memory_bytes(&self) -> u64 {
        let checksums = |filter: &OpenFilter| match filter {
            OpenFilter::InParts(parts) => parts.memory_bytes(),
            OpenFilter::Absent | OpenFilter::Resident(_) => 0,
        };
        let loaded = self.index_root.len()
            + self.range_tombstones.len()
            + checksums(&self.partition_filter)
            + checksums(&self.row_filter);
        self.resident_bytes() + loaded as u64
    }

    /// Prefetches the data that [`TableReader::may_contain_partition`] will read.
    #[inline]
    pub fn prefetch_filter(&self, hash: KeyHash) {
        if let OpenFilter::Resident(filter) = &self.partition_filter {
            filter.prefetch(hash.partition);
        }
    }

    /// False only if the table has neither rows nor range tombstones of the partition. `cache`: for a part of the filter that is not in
    /// memory.
    #[inline]
    pub fn may_contain_partition(
        self: &Arc<Self>,
        cache: Option<&BlockCache>,
        hash: KeyHash,
    ) -> Result<bool, TableError> {
        match &self.partition_filter {
            OpenFilter::Resident(filter) => Ok(filter.may_contain(hash.partition)),
            OpenFilter::Absent => Ok(true),
            OpenFilter::InParts(parts) => {
                self.look_into(parts, BlockKind::PartitionFilter, cache, hash.partition)
            }
        }
    }

    /// False only if the table has no row with exactly this key. Its range tombstones may still cover the key.
    #[inline]
    pub fn may_contain_row(
        self: &Arc<Self>,
        cache: Option<&BlockCache>,
        hash: KeyHash,
    ) -> Result<bool, TableError> {
        match &self.row_filter {
            OpenFilter::Resident(filter) => Ok(filter.may_contain(hash.row)),
            OpenFilter::Absent => self.may_contain_partition(cache, hash),
            OpenFilter::InParts(parts) => self.look_into(parts, BlockKind::RowFilter, cache, hash.row),
        }
    }

    /// Looks into the part of a filter that decides about a hash.
    #[cold]
    fn look_into(
        self: &Arc<Self>,
        parts: &FilterParts,
        kind: fn(usize) -> BlockKind,
        cache: Option<&BlockCache>,
        hash: u64,
    ) -> Result<bool, TableError> {
        let FilterPart { number, target } = parts.part_of(hash);
        let part = self.block(cache, kind(number), target, BlockReading::OF_ONE_ROW)?;
        Ok(parts.may_contain(part.body(), hash))
    }

    /// Checks the parts of filters that are not in memory.
    pub(super) async fn check_filters(self: &Arc<Self>) -> Result<(), TableError> {
        type KindOf = fn(usize) -> BlockKind;
        let filters: [(&OpenFilter, KindOf); 2] =
            [(&self.partition_filter, BlockKind::PartitionFilter), (&self.row_filter, BlockKind::RowFilter)];
        for (filter, kind) in filters {
            let OpenFilter::InParts(parts) = filter else { continue };
            for FilterPart { number, target } in parts.parts() {
                self.block(None, kind(number), target, BlockReading::OF_ONE_ROW)?;
                yield_now().await;
            }
        }
        Ok(())
    }

    /// The range tombstones.
    #[inline]
    pub fn range_tombstones(&self) -> RangeTombstones<'_> {
        let Some(range_tombstones) = RangeTombstones::new(&self.range_tombstones) else {
            broken!("the range tombstones of an open table can be read");
            return RangeTombstones::default();
        };
        range_tombstones
    }

    pub(super) fn malformed_block(&self, target: BlockHandle) -> TableError {
        self.damaged(target.offset, "a block is malformed")
    }

    /// A block's body from the cache; else it is read, checked and unpacked. It may be only the part that the reading needs.
    #[inline]
    pub(super) fn block(
        self: &Arc<Self>,
        cache: Option<&BlockCache>,
        kind: BlockKind,
        target: BlockHandle,
        reading: BlockReading,
    ) -> Result<BlockData, TableError> {
        if let Some(data) = cache.and_then(|cache| cache.get(self.id, target.offset, reading.part())) {
            return Ok(data);
        }
        self.load_block(cache, kind, target, reading)
    }

    #[cold]
    fn load_block(
        self: &Arc<Self>,
        cache: Option<&BlockCache>,
        kind: BlockKind,
        target: BlockHandle,
        reading: BlockReading,
    ) -> Result<BlockData, TableError> {
        let missing =
            || MissingBlock { table: Arc::clone(self) as Arc<dyn BlockSource>, kind, target, reading };
        if cache.is_some_and(|cache| !cache.may_read_disk(missing)) {
            return Err(TableError::NotCached { path: self.file.path.clone(), offset: target.offset });
        }
        self.check_place(kind, target)?;
        let bytes = self.file.read(target.offset, u64::from(target.length))?;
        let (key, data) = self.unpack(kind, target, reading.part(), &bytes, &mut Vec::new())?;
        if let Some(cache) = cache.filter(|_| reading.pattern != ReadPattern::LongRange) {
            cache.insert(key, data.clone());
        }
        Ok(data)
    }

    pub(super) fn check_place(&self, kind: BlockKind, target: BlockHandle) -> Result<(), TableError> {
        let end = target.offset.checked_add(u64::from(target.length));
        let (first, behind) = match kind {
            BlockKind::Data(_) => (0, Some(self.footer.data_bytes)),
            BlockKind::IndexLeaf => self.footer.index_leaves.bounds(),
            BlockKind::PartitionFilter(_) => self.footer.partition_filter.bounds(),
            BlockKind::RowFilter(_) => self.footer.row_filter.bounds(),
        };
        match end.zip(behind) {
            Some((end, behind)) if first <= target.offset && end <= behind => Ok(()),
            _ => Err(self.damaged(target.offset, "the index points outside its part of the file")),
        }
    }

    /// Checks and unpacks a part of a block as it is stored. Returns it with its key in a cache. `scratch` is a buffer for reuse.
    pub(super) fn unpack(
        &self,
        kind: BlockKind,
        target: BlockHandle,
        part: BlockPart,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(BlockKey, BlockData), TableError> {
        let data = match kind {
            BlockKind::Data(_) => read_block(bytes, part, scratch),
            BlockKind::IndexLeaf => unpack_leaf(bytes),
            BlockKind::PartitionFilter(number) => unpack_part(&self.partition_filter, number, bytes),
            BlockKind::RowFilter(number) => unpack_part(&self.row_filter, number, bytes),
        };
        let data = data.map_err(|reason| self.damaged(target.offset, reason))?;
        // Also where nothing was left out.
        let part = if data.is_whole() { BlockPart::Whole } else { part };
        Ok((BlockKey::new(self.id, target.offset, part), data))
    }
}

fn unpack_leaf(bytes: &[u8]) -> Result<BlockData, &'static str> {
    let (node, crc32) =
        bytes.split_last_chunk::<LEAF_CHECKSUM_BYTES>().ok_or("a leaf of the index is too short")?;
    if !checksum_matches(node, u32::from_le_bytes(*crc32)) {
        return Err("the checksum of a leaf of the index is wrong");
    }
    Ok(BlockData::whole(node))
}

fn unpack_part(filter: &OpenFilter, number: usize, bytes: &[u8]) -> Result<BlockData, &'static str> {
    match filter {
        OpenFilter::InParts(parts) if parts.is_part(number, bytes) => Ok(BlockData::whole(bytes)),
        _ => Err(DAMAGED_PART),
    }
}

const DAMAGED_PART: &str = "the checksum of a part of a filter is wrong";
const MALFORMED_FILTER: &str = "a filter is malformed";

/// Opens a filter without parts.
fn open_whole_filter(file: &TableFile, section: &Section) -> Result<OpenFilter, TableError> {
    let bytes = file.load_section(section)?;
    if bytes.is_empty() {
        return Ok(OpenFilter::Absent);
    }
    let filter = Filter::read(&bytes).ok_or_else(|| file.damaged(section.offset, MALFORMED_FILTER))?;
    Ok(OpenFilter::Resident(filter))
}

/// Opens a filter that has parts.
fn open_filter(file: &TableFile, section: &Section, is_resident: bool) -> Result<OpenFilter, TableError> {
    if section.length == 0 {
        return Ok(OpenFilter::Absent);
    }
    let malformed = || file.damaged(section.offset, MALFORMED_FILTER);
    let lines_bytes = lines_bytes(section).ok_or_else(malformed)?;
    let tail_offset = section.offset.checked_add(lines_bytes).ok_or_else(malformed)?;
    let tail_section = Section { offset: tail_offset, length: section.length - lines_bytes, ..*section };
    let tail = file.load_section(&tail_section)?;
    let parts = FilterParts::read(section.offset, lines_bytes, &tail).ok_or_else(malformed)?;
    if !is_resident {
        return Ok(OpenFilter::InParts(parts));
    }
    let lines = file.read(section.offset, lines_bytes)?;
    let filter = parts.load(&lines).map_err(|offset| file.damaged(offset, DAMAGED_PART))?;
    Ok(OpenFilter::Resident(filter))
}
