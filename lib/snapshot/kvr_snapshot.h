/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SNAPSHOT_H
#define KVR_SNAPSHOT_H

/**
 * @file
 * Snapshots: the state of a router in a file, for its next incarnation.
 *
 *   head (64 bytes) | record, record, ... | tail (32 bytes)
 *   record = kind u32, bytes u32, then `bytes` bytes: a struct below and the data that follow it,
 *            padded with zeros to a multiple of 8
 *
 * The file is accepted as a whole or not at all. The tail has the length of everything before it
 * and its XXH3-64, so a truncated, extended or modified file is rejected. The head names the
 * version of this format, the block hash and the pools; a file with other values is rejected too. A
 * new file is written next to the old one (`PATH.new`), flushed to disk and renamed over it: a
 * complete file exists at every moment. A lock on `PATH.new` excludes a second writer of the path.
 * The mode is 0600, as the file contains session ids and a secret.
 *
 * Order of records: pieces, sessions and live requests in any order, workers last. If a worker has
 * no record, it left while the snapshot was made; the reader ignores records about it. Numbers have
 * the byte order of the machine, little-endian; the file is not portable.
 *
 * A writer or a loaded snapshot has one owner, a thread that may wait for the disk. Budget: the
 * check reads 1 GB/s; a block takes 8 bytes, a piece 24 more, and 4 for each rank that holds it.
 *
 * Pure: no EAL. All file operations go through struct kvr_snap_os, which tests and the simulator
 * replace to inject failures.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KVR_SNAP_VERSION 1u

/** Identity of the router's configuration. It must match when a file is read. */
struct kvr_snap_shape {
	uint64_t hash;	/**< sequence hash of fixed tokens: identifies the hash function */
	uint64_t pools; /**< digest of the pools: names, roles, block sizes */
};

/** Other fields of the head. */
struct kvr_snap_about {
	uint64_t made_ms; /**< Unix time */
	uint64_t secret;  /**< for the caller: seed of values in the tags of sessions */
	uint32_t epoch;	  /**< epoch of the router that wrote it */
};

enum kvr_snap_kind {
	KVR_SNAP_PIECE = 1, /**< struct kvr_snap_piece, n hashes, n_owners of kvr_snap_owner */
	KVR_SNAP_SESSION,   /**< struct kvr_snap_session, its id */
	KVR_SNAP_LIVE,	    /**< struct kvr_snap_live */
	KVR_SNAP_WORKER,    /**< struct kvr_snap_worker, dp_size of struct kvr_snap_rank */
};

/** Consecutive blocks; each owner holds a number of them from the first on, in one tier. */
struct kvr_snap_piece {
	uint16_t pool;	   /**< index */
	uint16_t n;	   /**< 1..512 */
	uint16_t n_owners; /**< 1..KVR_SNAP_MAX_OWNERS */
	uint8_t tier;
	uint8_t has_parent;
	uint64_t parent; /**< hash before the first block; valid with has_parent */
};

struct kvr_snap_owner {
	uint16_t rank; /**< dense: see kvr_snap_rank; below KVR_SNAP_MAX_OWNERS */
	uint16_t n;    /**< 1..n of the piece */
};

/** Hashes of a piece that was read, and its owners. */
static inline const uint64_t *kvr_snap_hashes(const struct kvr_snap_piece *piece)
{
	return (const uint64_t *)(const void *)(piece + 1);
}

static inline const struct kvr_snap_owner *kvr_snap_owners(const struct kvr_snap_piece *piece)
{
	return (const struct kvr_snap_owner *)(const void *)(kvr_snap_hashes(piece) + piece->n);
}

struct kvr_snap_session {
	uint16_t pool;
	uint16_t id_len; /**< 1..256 */
	uint32_t dp_rank;
	uint64_t worker;
	uint64_t tag;
	uint64_t ttl_ns;
	uint64_t left_ns; /**< at the time of writing */
};

/** The names of a live request. */
struct kvr_snap_live {
	uint64_t source, id; /**< of the client */
	uint64_t worker;
	uint32_t epoch; /**< incarnation of the worker */
	uint32_t pool;
};

struct kvr_snap_worker {
	uint64_t id;
	uint64_t hello_digest; /**< digest of its HELLO */
	uint32_t epoch;
	uint32_t pool;
	uint32_t dp_start;
	uint32_t dp_size; /**< 1..256 */
};

/** Rank dp_start + i of a worker, as it was before the first piece was written. */
struct kvr_snap_rank {
	uint64_t next;	/**< id of the next KV event: all earlier events are contained in the pieces
			 */
	uint32_t dense; /**< number of the rank in pieces */
	uint32_t whole; /**< 1: no event before `next` was missed */
};

#define KVR_SNAP_MAX_PIECE  512u
#define KVR_SNAP_MAX_OWNERS 16384u
#define KVR_SNAP_MAX_RANKS  256u
#define KVR_SNAP_MAX_ID	    256u

/** File operations, replaceable. As those of the C library: -1 and errno. */
struct kvr_snap_os {
	int (*open)(const char *path, int flags, mode_t mode);
	ssize_t (*write)(int fd, const void *p, size_t n);
	ssize_t (*read)(int fd, void *p, size_t n);
	int (*fsync)(int fd);
	int (*rename)(const char *from, const char *to);
};
extern const struct kvr_snap_os kvr_snap_os;

/* ---- snapshot_write.c ---- */

struct kvr_snap_writer;

/**
 * Begin a snapshot that will become @p path. @p os NULL: real files.
 * @return the writer, or NULL with errno: EBUSY (another writer is active), ENAMETOOLONG, ENOMEM,
 *   or an error of open(2), flock(2), write(2).
 */
struct kvr_snap_writer *kvr_snap_begin(const char *path, const struct kvr_snap_shape *shape,
				       const struct kvr_snap_about *about,
				       const struct kvr_snap_os *os);

/**
 * Add a record: @p fixed, then @p more (may be NULL with 0). It stays in memory; the file is not
 * written. After a failure all later calls fail.
 * @return 0, -ENOMEM, -E2BIG (a record of 4 GiB), or the error of an earlier call.
 */
int kvr_snap_put(struct kvr_snap_writer *writer, enum kvr_snap_kind kind, const void *fixed,
		 size_t fixed_len, const void *more, size_t more_len);

/** Bytes that are not written yet. */
size_t kvr_snap_pending(const struct kvr_snap_writer *writer);

/**
 * Write the pending bytes. May wait for the disk. @return 0, or -errno of write(2), typically
 * -ENOSPC.
 */
int kvr_snap_flush(struct kvr_snap_writer *writer);

/**
 * Write the tail, flush the file to disk and rename it over the previous one. In every case the
 * writer and `PATH.new` no longer exist afterwards. @p bytes (may be NULL): length of the file.
 * @return 0, or the first error: then the previous file is unchanged.
 */
int kvr_snap_commit(struct kvr_snap_writer *writer, uint64_t *bytes);

/** Discard the writer and `PATH.new`. Accepts NULL. */
void kvr_snap_abort(struct kvr_snap_writer *writer);

/* ---- snapshot_read.c ---- */

/** One record; valid as long as the snapshot. */
struct kvr_snap_record {
	enum kvr_snap_kind kind;
	const void *fixed;
	const void *more; /**< the hashes followed by the owners, the id, or the ranks */
};

struct kvr_snap;

/**
 * Read @p path and check it completely, including lengths and ranges of all records.
 * @param why receives a one-line message on failure.
 * @return 0; -ENOENT: no file; -EBADMSG: not a snapshot, truncated, or modified; -ENOTSUP: other
 *   version; -EXDEV: other pools or another block hash; -EFBIG: longer than @p max_bytes; -ENOMEM;
 *   or an error of open(2), read(2).
 */
int kvr_snap_load(const char *path, const struct kvr_snap_shape *shape, uint64_t max_bytes,
		  const struct kvr_snap_os *os, struct kvr_snap **out, char *why, size_t whylen);

const struct kvr_snap_about *kvr_snap_about(const struct kvr_snap *snap);
uint64_t kvr_snap_bytes(const struct kvr_snap *snap);

/** Walk the records: @p pos starts at 0. @return false at the end. */
bool kvr_snap_next(const struct kvr_snap *snap, uint64_t *pos, struct kvr_snap_record *out);

/** Free a snapshot. Accepts NULL. */
void kvr_snap_free(struct kvr_snap *snap);

#endif
