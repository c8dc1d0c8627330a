/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that are whole, and all the ways in which they are not. */
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
static char path[64], beside[72];
static const struct kvr_snap_shape shape = {0x1111, 0x2222};
static const struct kvr_snap_about about = {.made_ms = 1234567, .secret = 77, .epoch = 9};

/* What an os does that fails at its n-th call of a kind. */
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

static void fill(struct kvr_snap_writer *w, uint32_t pieces)
{
	uint64_t sh[KVR_SNAP_MAX_PIECE + 1];
	const struct kvr_snap_worker worker = {
		.id = 5, .hello_digest = 6, .epoch = 7, .pool = 0, .dp_start = 2, .dp_size = 2};
	const struct kvr_snap_rank rank[2] = {{100, 3, 1}, {200, 4, 0}};
	const struct kvr_snap_session session = {
		.id_len = 5, .dp_rank = 2, .worker = 5, .ttl_ns = 50, .left_ns = 40};
	const struct kvr_snap_live live = {.source = 1, .id = 2, .worker = 5, .epoch = 7};

	for (uint32_t i = 0; i < pieces; i++) {
		const struct kvr_snap_piece p = {.n = (uint16_t)(1 + i % KVR_SNAP_MAX_PIECE),
						 .n_owners = 2};
		const struct kvr_snap_owner o[2] = {{3, p.n}, {4, 1}};

		for (uint32_t k = 0; k < p.n; k++)
			sh[k] = kvr_mix64(i * 1000u + k);
		memcpy(&sh[p.n], o, sizeof(o));
		CU_ASSERT_EQUAL(kvr_snap_put(w, KVR_SNAP_PIECE, &p, sizeof(p), sh,
					     p.n * sizeof(sh[0]) + sizeof(o)),
				0);
	}
	CU_ASSERT_EQUAL(kvr_snap_put(w, KVR_SNAP_SESSION, &session, sizeof(session), "abcde", 5),
			0);
	CU_ASSERT_EQUAL(kvr_snap_put(w, KVR_SNAP_LIVE, &live, sizeof(live), NULL, 0), 0);
	CU_ASSERT_EQUAL(
		kvr_snap_put(w, KVR_SNAP_WORKER, &worker, sizeof(worker), rank, sizeof(rank)), 0);
}

static int write_one(uint32_t pieces, const struct kvr_snap_os *os)
{
	struct kvr_snap_writer *w = kvr_snap_begin(path, &shape, &about, os);

	if (w == NULL)
		return -errno;
	fill(w, pieces);
	return kvr_snap_commit(w, NULL);
}

static int load(struct kvr_snap **s)
{
	char why[200] = "";
	const int rc = kvr_snap_load(path, &shape, MOST, NULL, s, why, sizeof(why));

	CU_ASSERT(rc == 0 || why[0] != '\0');
	return rc;
}

static int load_only(void)
{
	struct kvr_snap *s = NULL;
	const int rc = load(&s);

	kvr_snap_free(s);
	return rc;
}

/* Pieces of a file that must be whole. */
static uint32_t pieces_there(void)
{
	struct kvr_snap *s = NULL;
	struct kvr_snap_record r;
	uint64_t pos = 0;
	uint32_t n = 0;

	CU_ASSERT_EQUAL_FATAL(load(&s), 0);
	while (kvr_snap_next(s, &pos, &r))
		n += r.kind == KVR_SNAP_PIECE;
	kvr_snap_free(s);
	return n;
}

static void what_is_written_is_read(void)
{
	struct kvr_snap *s = NULL;
	struct kvr_snap_record r;
	uint32_t pieces = 0, sessions = 0, live = 0, workers = 0;
	uint64_t pos = 0;
	struct stat st;

	CU_ASSERT_EQUAL(load(&s), -ENOENT);
	CU_ASSERT_EQUAL_FATAL(write_one(1500, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(load(&s), 0);
	CU_ASSERT_EQUAL(kvr_snap_about(s)->made_ms, 1234567);
	CU_ASSERT_EQUAL(kvr_snap_about(s)->secret, 77);
	CU_ASSERT_EQUAL(kvr_snap_about(s)->epoch, 9);
	while (kvr_snap_next(s, &pos, &r)) {
		const struct kvr_snap_piece *p = r.fixed;
		const struct kvr_snap_rank *k = r.more;

		if (r.kind == KVR_SNAP_PIECE) {
			for (uint32_t i = 0; i < p->n; i++)
				CU_ASSERT_EQUAL(((const uint64_t *)r.more)[i],
						kvr_mix64(pieces * 1000u + i));
			CU_ASSERT_EQUAL(p->n, 1 + pieces % KVR_SNAP_MAX_PIECE);
			CU_ASSERT(kvr_snap_owners(p)[0].rank == 3 &&
				  kvr_snap_owners(p)[0].n == p->n);
			CU_ASSERT(kvr_snap_owners(p)[1].rank == 4 && kvr_snap_owners(p)[1].n == 1);
			pieces++;
		} else if (r.kind == KVR_SNAP_SESSION) {
			CU_ASSERT(memcmp(r.more, "abcde", 5) == 0);
			sessions++;
		} else if (r.kind == KVR_SNAP_LIVE) {
			CU_ASSERT_EQUAL(((const struct kvr_snap_live *)r.fixed)->id, 2);
			live++;
		} else {
			CU_ASSERT(k[1].next == 200 && k[1].dense == 4 && k[1].whole == 0);
			workers++;
		}
	}
	CU_ASSERT(pieces == 1500 && sessions == 1 && live == 1 && workers == 1);
	CU_ASSERT(stat(path, &st) == 0 && st.st_size == (off_t)kvr_snap_bytes(s));
	CU_ASSERT_EQUAL(st.st_mode & 0777, 0600);
	CU_ASSERT(access(beside, F_OK) != 0);
	kvr_snap_free(s);
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

static void every_bit_counts(void)
{
	take_image();
	for (size_t i = 0; i < image_len; i++) {
		const uint8_t bit = (uint8_t)(1u << (i * 5 + i / 64) % 8);
		int rc;

		image[i] ^= bit;
		put_image(image_len);
		rc = load_only();
		/* A flipped version is another version. */
		CU_ASSERT(rc == -EBADMSG || (rc == -ENOTSUP && i >= 8 && i < 16));
		image[i] ^= bit;
	}
	put_image(image_len);
	CU_ASSERT_EQUAL(load_only(), 0);
}

static void torn_anywhere(void)
{
	take_image();
	for (size_t n = 0; n < image_len; n += n < 100 || n + 100 > image_len ? 1 : 13) {
		put_image(n);
		CU_ASSERT_EQUAL(load_only(), -EBADMSG);
	}
	/* Longer: something was written behind it, or its head was written over an older one. */
	memset(image + image_len, 0, 64);
	put_image(image_len + 1);
	CU_ASSERT_EQUAL(load_only(), -EBADMSG);
	put_image(image_len + 64);
	CU_ASSERT_EQUAL(load_only(), -EBADMSG);
}

/* Records that are none in a file whose checksum is right: the writer is wrong. */
static void records_are_checked(void)
{
	struct kvr_snap_piece p = {.n = KVR_SNAP_MAX_PIECE + 1, .n_owners = 1};
	const struct {
		struct kvr_snap_piece p;
		uint64_t sh;
		struct kvr_snap_owner o[2];
	} longer = {.p = {.n = 1, .n_owners = 2}, .o = {{0, 1}, {0, 2}}},
	  wild = {.p = {.n = 1, .n_owners = 2}, .o = {{KVR_SNAP_MAX_OWNERS, 1}, {0, 1}}};
	struct kvr_snap_session s = {.id_len = 300};
	struct kvr_snap_worker k = {.dp_size = 4};
	const struct {
		uint32_t kind;
		const void *p;
		size_t n;
	} bad[] = {{KVR_SNAP_PIECE, &p, sizeof(p)},
		   {KVR_SNAP_PIECE, &p, 8},
		   {KVR_SNAP_PIECE, &longer, sizeof(longer)},
		   {KVR_SNAP_PIECE, &wild, sizeof(wild)},
		   {KVR_SNAP_SESSION, &s, sizeof(s)},
		   {KVR_SNAP_SESSION, &s, 16},
		   {KVR_SNAP_WORKER, &k, sizeof(k)},
		   {KVR_SNAP_WORKER, &k, 0},
		   {KVR_SNAP_LIVE, &k, 24},
		   {0, &k, 8},
		   {KVR_SNAP_WORKER + 1, &k, sizeof(k)}};

	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct kvr_snap_writer *w = kvr_snap_begin(path, &shape, &about, NULL);

		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		CU_ASSERT_EQUAL(kvr_snap_put(w, (enum kvr_snap_kind)bad[i].kind, bad[i].p, bad[i].n,
					     NULL, 0),
				0);
		CU_ASSERT_EQUAL(kvr_snap_commit(w, NULL), 0);
		CU_ASSERT_EQUAL(load_only(), -EBADMSG);
	}
}

static void of_others(void)
{
	struct kvr_snap_shape other = shape;
	struct kvr_snap *s = NULL;
	char why[200];

	CU_ASSERT_EQUAL(write_one(3, NULL), 0);
	other.pools++;
	CU_ASSERT_EQUAL(kvr_snap_load(path, &other, MOST, NULL, &s, why, sizeof(why)), -EXDEV);
	other = shape;
	other.hash++;
	CU_ASSERT_EQUAL(kvr_snap_load(path, &other, MOST, NULL, &s, why, sizeof(why)), -EXDEV);
	CU_ASSERT_EQUAL(kvr_snap_load(path, &shape, 100, NULL, &s, why, sizeof(why)), -EFBIG);
	CU_ASSERT_EQUAL(kvr_snap_load(folder, &shape, MOST, NULL, &s, why, sizeof(why)), -EBADMSG);
	take_image();
	image[8]++; /* the version */
	put_image(image_len);
	CU_ASSERT_EQUAL(load_only(), -ENOTSUP);
	CU_ASSERT_PTR_NULL(s);
}

static void a_read_that_fails(void)
{
	struct kvr_snap_os os = kvr_snap_os;
	struct kvr_snap *s = NULL;
	char why[200];

	CU_ASSERT_EQUAL(write_one(3, NULL), 0);
	os.read = bad_read;
	n_reads = 0;
	fail_with = EIO;
	CU_ASSERT_EQUAL(kvr_snap_load(path, &shape, MOST, &os, &s, why, sizeof(why)), -EIO);
	n_reads = 0;
	fail_with = EINTR;
	CU_ASSERT_EQUAL(kvr_snap_load(path, &shape, MOST, &os, &s, why, sizeof(why)), 0);
	kvr_snap_free(s);
}

/* Whatever fails, the file of before is there and whole, and nothing lies beside it. */
static void a_disk_that_fails(void)
{
	struct kvr_snap_os os = kvr_snap_os;

	CU_ASSERT_EQUAL(write_one(11, NULL), 0);
	os.write = bad_write;
	fail_with = ENOSPC;
	write_most = 500; /* short writes go on */
	for (fail_at = 1; fail_at < 30; fail_at++) {
		n_writes = 0;
		CU_ASSERT_EQUAL(write_one(40, &os), n_writes < fail_at ? 0 : -ENOSPC);
		if (n_writes < fail_at)
			break;
		CU_ASSERT_EQUAL(pieces_there(), 11);
		CU_ASSERT(access(beside, F_OK) != 0);
	}
	CU_ASSERT(fail_at > 5 && fail_at < 30);
	CU_ASSERT_EQUAL(pieces_there(), 40);
	fail_with = EINTR;
	n_writes = 0;
	fail_at = 2;
	CU_ASSERT_EQUAL(write_one(12, &os), 0);
	CU_ASSERT_EQUAL(pieces_there(), 12);
	fail_with = EIO;
	os = kvr_snap_os;
	os.fsync = bad_fsync;
	CU_ASSERT_EQUAL(write_one(40, &os), -EIO);
	os = kvr_snap_os;
	os.rename = bad_rename;
	CU_ASSERT_EQUAL(write_one(40, &os), -EIO);
	CU_ASSERT(n_syncs == 1 && n_renames == 1);
	CU_ASSERT_EQUAL(pieces_there(), 12);
	CU_ASSERT(access(beside, F_OK) != 0);
	fail_with = fail_at = 0;
	write_most = 0;
}

/* A real limit: the kernel refuses what goes beyond it. */
static void a_file_that_may_not_grow(void)
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
	CU_ASSERT_EQUAL(pieces_there(), 5);
	CU_ASSERT(access(beside, F_OK) != 0);
}

static void one_writer_at_a_time(void)
{
	struct kvr_snap_writer *w = kvr_snap_begin(path, &shape, &about, NULL);

	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	fill(w, 7);
	CU_ASSERT_EQUAL(kvr_snap_flush(w), 0);
	CU_ASSERT_EQUAL(kvr_snap_pending(w), 0);
	CU_ASSERT_EQUAL(write_one(3, NULL), -EBUSY);
	CU_ASSERT_EQUAL(kvr_snap_commit(w, NULL), 0);
	CU_ASSERT_EQUAL(pieces_there(), 7);
	w = kvr_snap_begin(path, &shape, &about, NULL);
	fill(w, 9);
	kvr_snap_abort(w);
	kvr_snap_abort(NULL);
	CU_ASSERT_EQUAL(pieces_there(), 7);
	CU_ASSERT_EQUAL(write_one(3, NULL), 0);
	CU_ASSERT_EQUAL(pieces_there(), 3);
}

static void paths_that_are_none(void)
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
	CU_TestInfo tests[] = {{"what is written is read", what_is_written_is_read},
			       {"every bit counts", every_bit_counts},
			       {"torn anywhere", torn_anywhere},
			       {"records are checked", records_are_checked},
			       {"of other pools, hashes, versions", of_others},
			       {"a read that fails", a_read_that_fails},
			       {"a disk that fails", a_disk_that_fails},
			       {"a file that may not grow", a_file_that_may_not_grow},
			       {"one writer at a time", one_writer_at_a_time},
			       {"paths that are none", paths_that_are_none},
			       CU_TEST_INFO_NULL};
	int rc;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/snapshot", folder);
	snprintf(beside, sizeof(beside), "%s.new", path);
	rc = kvr_test_run("snapshot", tests);
	unlink(path);
	rmdir(folder);
	return rc;
}
