/* SPDX-License-Identifier: BSD-3-Clause */
/* Complete snapshot files, and all the ways to damage them. */
#include "kvr_snapshot.h"

#include "kvr_rand.h"
#include "kvr_test.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST (UINT64_C(64) << 20)

static char folder[] = "/tmp/kvr_snapshot.XXXXXX";
static char path[64], new_path[72];
static const struct kvr_snap_shape shape = {0x1111, 0x2222};
static const struct kvr_snap_about about = {.made_ms = 1234567, .secret = 77, .epoch = 9};

/* File operations that fail at the n-th call of a kind. */
static int fail_at, fail_with, n_writes, n_syncs, n_renames, n_reads;
static size_t write_most;

static ssize_t bad_write(int fd, const void *p, size_t n)
{
	if (++n_writes == fail_at) {
		errno = fail_with;
		return -1;
	}
	return write(fd, p, write_most != 0 && n > write_most ? write_most : n);
}

static int bad_fsync(int fd)
{
	n_syncs++;
	errno = fail_with;
	return fail_with != 0 ? -1 : fsync(fd);
}

static int bad_rename(const char *from, const char *to)
{
	n_renames++;
	errno = fail_with;
	return fail_with != 0 ? -1 : rename(from, to);
}

static ssize_t bad_read(int fd, void *p, size_t n)
{
	if (++n_reads == 1) {
		errno = fail_with;
		return -1;
	}
	return read(fd, p, n);
}

static void fill_writer(struct kvr_snap_writer *writer, uint32_t pieces)
{
	uint64_t sh[KVR_SNAP_MAX_PIECE + 1];
	const struct kvr_snap_worker worker = {
		.id = 5, .hello_digest = 6, .epoch = 7, .pool = 0, .dp_start = 2, .dp_size = 2};
	const struct kvr_snap_rank rank[2] = {{100, 3, 1}, {200, 4, 0}};
	const struct kvr_snap_session session = {
		.id_len = 5, .dp_rank = 2, .worker = 5, .ttl_ns = 50, .left_ns = 40};
	const struct kvr_snap_live live = {.source = 1, .id = 2, .worker = 5, .epoch = 7};

	for (uint32_t i = 0; i < pieces; i++) {
		const struct kvr_snap_piece piece = {.n = (uint16_t)(1 + i % KVR_SNAP_MAX_PIECE),
						     .n_owners = 2};
		const struct kvr_snap_owner owner[2] = {{3, piece.n}, {4, 1}};

		for (uint32_t k = 0; k < piece.n; k++)
			sh[k] = kvr_mix64(i * 1000u + k);
		memcpy(&sh[piece.n], owner, sizeof(owner));
		CU_ASSERT_EQUAL(kvr_snap_put(writer, KVR_SNAP_PIECE, &piece, sizeof(piece), sh,
					     piece.n * sizeof(sh[0]) + sizeof(owner)),
				0);
	}
	CU_ASSERT_EQUAL(
		kvr_snap_put(writer, KVR_SNAP_SESSION, &session, sizeof(session), "abcde", 5), 0);
	CU_ASSERT_EQUAL(kvr_snap_put(writer, KVR_SNAP_LIVE, &live, sizeof(live), NULL, 0), 0);
	CU_ASSERT_EQUAL(
		kvr_snap_put(writer, KVR_SNAP_WORKER, &worker, sizeof(worker), rank, sizeof(rank)),
		0);
}

static int write_one(uint32_t pieces, const struct kvr_snap_os *os)
{
	struct kvr_snap_writer *writer = kvr_snap_begin(path, &shape, &about, os);

	if (writer == NULL)
		return -errno;
	fill_writer(writer, pieces);
	return kvr_snap_commit(writer, NULL);
}

static int load_snapshot(struct kvr_snap **snap)
{
	char why[200] = "";
	const int rc = kvr_snap_load(path, &shape, MOST, NULL, snap, why, sizeof(why));

	CU_ASSERT(rc == 0 || why[0] != '\0');
	return rc;
}

static int load_only(void)
{
	struct kvr_snap *snap = NULL;
	const int rc = load_snapshot(&snap);

	kvr_snap_free(snap);
	return rc;
}

/* Number of pieces of a file that must be valid. */
static uint32_t count_pieces(void)
{
	struct kvr_snap *snap = NULL;
	struct kvr_snap_record record;
	uint64_t pos = 0;
	uint32_t n = 0;

	CU_ASSERT_EQUAL_FATAL(load_snapshot(&snap), 0);
	while (kvr_snap_next(snap, &pos, &record))
		n += record.kind == KVR_SNAP_PIECE;
	kvr_snap_free(snap);
	return n;
}

static void written_records_are_read(void)
{
	struct kvr_snap *snap = NULL;
	struct kvr_snap_record record;
	uint32_t pieces = 0, sessions = 0, live = 0, workers = 0;
	uint64_t pos = 0;
	struct stat st;

	CU_ASSERT_EQUAL(load_snapshot(&snap), -ENOENT);
	CU_ASSERT_EQUAL_FATAL(write_one(1500, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(load_snapshot(&snap), 0);
	CU_ASSERT_EQUAL(kvr_snap_about(snap)->made_ms, 1234567);
	CU_ASSERT_EQUAL(kvr_snap_about(snap)->secret, 77);
	CU_ASSERT_EQUAL(kvr_snap_about(snap)->epoch, 9);
	while (kvr_snap_next(snap, &pos, &record)) {
		const struct kvr_snap_piece *piece = record.fixed;
		const struct kvr_snap_rank *k = record.more;

		if (record.kind == KVR_SNAP_PIECE) {
			for (uint32_t i = 0; i < piece->n; i++)
				CU_ASSERT_EQUAL(((const uint64_t *)record.more)[i],
						kvr_mix64(pieces * 1000u + i));
			CU_ASSERT_EQUAL(piece->n, 1 + pieces % KVR_SNAP_MAX_PIECE);
			CU_ASSERT(kvr_snap_owners(piece)[0].rank == 3 &&
				  kvr_snap_owners(piece)[0].n == piece->n);
			CU_ASSERT(kvr_snap_owners(piece)[1].rank == 4 &&
				  kvr_snap_owners(piece)[1].n == 1);
			pieces++;
		} else if (record.kind == KVR_SNAP_SESSION) {
			CU_ASSERT(memcmp(record.more, "abcde", 5) == 0);
			sessions++;
		} else if (record.kind == KVR_SNAP_LIVE) {
			CU_ASSERT_EQUAL(((const struct kvr_snap_live *)record.fixed)->id, 2);
			live++;
		} else {
			CU_ASSERT(k[1].next == 200 && k[1].dense == 4 && k[1].whole == 0);
			workers++;
		}
	}
	CU_ASSERT(pieces == 1500 && sessions == 1 && live == 1 && workers == 1);
	CU_ASSERT(stat(path, &st) == 0 && st.st_size == (off_t)kvr_snap_bytes(snap));
	CU_ASSERT_EQUAL(st.st_mode & 0777, 0600);
	CU_ASSERT(access(new_path, F_OK) != 0);
	kvr_snap_free(snap);
}

static uint8_t image[1 << 16];
static size_t image_len;

static void put_image(size_t len)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CU_ASSERT_EQUAL(write(fd, image, len), (ssize_t)len);
	close(fd);
}

static void take_image(void)
{
	int fd;

	CU_ASSERT_EQUAL(write_one(9, NULL), 0);
	fd = open(path, O_RDONLY);
	image_len = (size_t)read(fd, image, sizeof(image) - 64);
	close(fd);
	CU_ASSERT_EQUAL(load_only(), 0);
}

static void every_modified_bit_is_detected(void)
{
	take_image();
	for (size_t i = 0; i < image_len; i++) {
		const uint8_t bit = (uint8_t)(1u << (i * 5 + i / 64) % 8);
		int rc;

		image[i] ^= bit;
		put_image(image_len);
		rc = load_only();
		/* A modified version field is another version. */
		CU_ASSERT(rc == -EBADMSG || (rc == -ENOTSUP && i >= 8 && i < 16));
		image[i] ^= bit;
	}
	put_image(image_len);
	CU_ASSERT_EQUAL(load_only(), 0);
}

static void every_truncation_is_detected(void)
{
	take_image();
	for (size_t n = 0; n < image_len; n += n < 100 || n + 100 > image_len ? 1 : 13) {
		put_image(n);
		CU_ASSERT_EQUAL(load_only(), -EBADMSG);
	}
	/* Longer files: data appended, or a head written over an older, longer file. */
	memset(image + image_len, 0, 64);
	put_image(image_len + 1);
	CU_ASSERT_EQUAL(load_only(), -EBADMSG);
	put_image(image_len + 64);
	CU_ASSERT_EQUAL(load_only(), -EBADMSG);
}

/* Invalid records in a file with a correct checksum: a faulty writer. */
static void invalid_records_are_rejected(void)
{
	struct kvr_snap_piece piece = {.n = KVR_SNAP_MAX_PIECE + 1, .n_owners = 1};
	const struct {
		struct kvr_snap_piece piece;
		uint64_t sh;
		struct kvr_snap_owner owner[2];
	} longer = {.piece = {.n = 1, .n_owners = 2}, .owner = {{0, 1}, {0, 2}}},
	  wild = {.piece = {.n = 1, .n_owners = 2}, .owner = {{KVR_SNAP_MAX_OWNERS, 1}, {0, 1}}};
	struct kvr_snap_session session = {.id_len = 300};
	struct kvr_snap_worker worker = {.dp_size = 4};
	const struct {
		uint32_t kind;
		const void *fixed;
		size_t n;
	} bad[] = {{KVR_SNAP_PIECE, &piece, sizeof(piece)},
		   {KVR_SNAP_PIECE, &piece, 8},
		   {KVR_SNAP_PIECE, &longer, sizeof(longer)},
		   {KVR_SNAP_PIECE, &wild, sizeof(wild)},
		   {KVR_SNAP_SESSION, &session, sizeof(session)},
		   {KVR_SNAP_SESSION, &session, 16},
		   {KVR_SNAP_WORKER, &worker, sizeof(worker)},
		   {KVR_SNAP_WORKER, &worker, 0},
		   {KVR_SNAP_LIVE, &worker, 24},
		   {0, &worker, 8},
		   {KVR_SNAP_WORKER + 1, &worker, sizeof(worker)}};

	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct kvr_snap_writer *writer = kvr_snap_begin(path, &shape, &about, NULL);

		CU_ASSERT_PTR_NOT_NULL_FATAL(writer);
		CU_ASSERT_EQUAL(kvr_snap_put(writer, (enum kvr_snap_kind)bad[i].kind, bad[i].fixed,
					     bad[i].n, NULL, 0),
				0);
		CU_ASSERT_EQUAL(kvr_snap_commit(writer, NULL), 0);
		CU_ASSERT_EQUAL(load_only(), -EBADMSG);
	}
}

static void other_pools_hashes_and_versions_are_rejected(void)
{
	struct kvr_snap_shape other = shape;
	struct kvr_snap *snap = NULL;
	char why[200];

	CU_ASSERT_EQUAL(write_one(3, NULL), 0);
	other.pools++;
	CU_ASSERT_EQUAL(kvr_snap_load(path, &other, MOST, NULL, &snap, why, sizeof(why)), -EXDEV);
	other = shape;
	other.hash++;
	CU_ASSERT_EQUAL(kvr_snap_load(path, &other, MOST, NULL, &snap, why, sizeof(why)), -EXDEV);
	CU_ASSERT_EQUAL(kvr_snap_load(path, &shape, 100, NULL, &snap, why, sizeof(why)), -EFBIG);
	CU_ASSERT_EQUAL(kvr_snap_load(folder, &shape, MOST, NULL, &snap, why, sizeof(why)),
			-EBADMSG);
	take_image();
	image[8]++; /* the version */
	put_image(image_len);
	CU_ASSERT_EQUAL(load_only(), -ENOTSUP);
	CU_ASSERT_PTR_NULL(snap);
}

static void read_errors_are_returned(void)
{
	struct kvr_snap_os os = kvr_snap_os;
	struct kvr_snap *snap = NULL;
	char why[200];

	CU_ASSERT_EQUAL(write_one(3, NULL), 0);
	os.read = bad_read;
	n_reads = 0;
	fail_with = EIO;
	CU_ASSERT_EQUAL(kvr_snap_load(path, &shape, MOST, &os, &snap, why, sizeof(why)), -EIO);
	n_reads = 0;
	fail_with = EINTR;
	CU_ASSERT_EQUAL(kvr_snap_load(path, &shape, MOST, &os, &snap, why, sizeof(why)), 0);
	kvr_snap_free(snap);
}

/* Whatever fails, the previous file stays valid and `PATH.new` is removed. */
static void write_errors_keep_the_previous_file(void)
{
	struct kvr_snap_os os = kvr_snap_os;

	CU_ASSERT_EQUAL(write_one(11, NULL), 0);
	os.write = bad_write;
	fail_with = ENOSPC;
	write_most = 500; /* short writes are continued */
	for (fail_at = 1; fail_at < 30; fail_at++) {
		n_writes = 0;
		CU_ASSERT_EQUAL(write_one(40, &os), n_writes < fail_at ? 0 : -ENOSPC);
		if (n_writes < fail_at)
			break;
		CU_ASSERT_EQUAL(count_pieces(), 11);
		CU_ASSERT(access(new_path, F_OK) != 0);
	}
	CU_ASSERT(fail_at > 5 && fail_at < 30);
	CU_ASSERT_EQUAL(count_pieces(), 40);
	fail_with = EINTR;
	n_writes = 0;
	fail_at = 2;
	CU_ASSERT_EQUAL(write_one(12, &os), 0);
	CU_ASSERT_EQUAL(count_pieces(), 12);
	fail_with = EIO;
	os = kvr_snap_os;
	os.fsync = bad_fsync;
	CU_ASSERT_EQUAL(write_one(40, &os), -EIO);
	os = kvr_snap_os;
	os.rename = bad_rename;
	CU_ASSERT_EQUAL(write_one(40, &os), -EIO);
	CU_ASSERT(n_syncs == 1 && n_renames == 1);
	CU_ASSERT_EQUAL(count_pieces(), 12);
	CU_ASSERT(access(new_path, F_OK) != 0);
	fail_with = fail_at = 0;
	write_most = 0;
}

/* A real limit of the kernel. */
static void a_file_size_limit_keeps_the_previous_file(void)
{
	struct rlimit old, low;

	CU_ASSERT_EQUAL(write_one(5, NULL), 0);
	signal(SIGXFSZ, SIG_IGN);
	CU_ASSERT_EQUAL(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = 100000;
	CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &low), 0);
	CU_ASSERT_EQUAL(write_one(1000, NULL), -EFBIG);
	CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &old), 0);
	CU_ASSERT_EQUAL(count_pieces(), 5);
	CU_ASSERT(access(new_path, F_OK) != 0);
}

static void only_one_writer_is_admitted(void)
{
	struct kvr_snap_writer *writer = kvr_snap_begin(path, &shape, &about, NULL);

	CU_ASSERT_PTR_NOT_NULL_FATAL(writer);
	fill_writer(writer, 7);
	CU_ASSERT_EQUAL(kvr_snap_flush(writer), 0);
	CU_ASSERT_EQUAL(kvr_snap_pending(writer), 0);
	CU_ASSERT_EQUAL(write_one(3, NULL), -EBUSY);
	CU_ASSERT_EQUAL(kvr_snap_commit(writer, NULL), 0);
	CU_ASSERT_EQUAL(count_pieces(), 7);
	writer = kvr_snap_begin(path, &shape, &about, NULL);
	fill_writer(writer, 9);
	kvr_snap_abort(writer);
	kvr_snap_abort(NULL);
	CU_ASSERT_EQUAL(count_pieces(), 7);
	CU_ASSERT_EQUAL(write_one(3, NULL), 0);
	CU_ASSERT_EQUAL(count_pieces(), 3);
}

static void invalid_paths_are_rejected(void)
{
	char longest[PATH_MAX + 2];

	CU_ASSERT_PTR_NULL(kvr_snap_begin("/nowhere/at/all", &shape, &about, NULL));
	CU_ASSERT_EQUAL(errno, ENOENT);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	CU_ASSERT_PTR_NULL(kvr_snap_begin(longest, &shape, &about, NULL));
	CU_ASSERT_EQUAL(errno, ENAMETOOLONG);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(written_records_are_read),
			       KVR_CASE(every_modified_bit_is_detected),
			       KVR_CASE(every_truncation_is_detected),
			       KVR_CASE(invalid_records_are_rejected),
			       KVR_CASE(other_pools_hashes_and_versions_are_rejected),
			       KVR_CASE(read_errors_are_returned),
			       KVR_CASE(write_errors_keep_the_previous_file),
			       KVR_CASE(a_file_size_limit_keeps_the_previous_file),
			       KVR_CASE(only_one_writer_is_admitted),
			       KVR_CASE(invalid_paths_are_rejected),
			       CU_TEST_INFO_NULL};
	int rc;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/snapshot", folder);
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	rc = kvr_test_run("snapshot", tests);
	unlink(path);
	rmdir(folder);
	return rc;
}
