/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SNAPSHOT_H
#define KVR_SNAPSHOT_H

/**
 * @file
 * Snapshots: what a router knows, in a file, for its next life.
 *
 *   head (64 bytes) | record, record, ... | tail (32 bytes)
 *   record = kind u32, bytes u32, and so many bytes: a struct below and what follows it,
 *            filled up with zeros to a multiple of 8
 *
 * The file is believed whole or not at all. The tail has the length of everything before it and its
 * XXH3-64, so a file that is torn, longer, shorter or has one bit changed is refused; the head says
 * by which version of this format, of the block hash and for which pools it was written, and a file
 * of others is refused, too. A new file is written beside the old one (`PATH.new`), forced to the
 * disk and renamed over it: there is a whole one at any moment, whatever happens when. Two writers
 * of one path exclude each other by a lock on `PATH.new`. The mode is 0600: the file has session
 * ids and a secret.
 *
 * Order of records: pools, then pieces, sessions and live requests in any order, workers last (who
 * is not named has left while the snapshot was made, and the reader ignores what is about him).
 * Numbers are those of the machine, little-endian; the file is not for travelling.
 *
 * A writer or a loaded snapshot has one owner, a thread that may wait for the disk. Budget: 1 GB/s
 * of memory bandwidth while it is checked; a block takes 8 bytes, a run
 * of blocks 24 more and 4 for each rank that has it.
 * Pure: no EAL. All that is done to files goes through struct kvr_snap_os, which tests and the
 * simulator replace to have them fail.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KVR_SNAP_VERSION 1u

/** For whom a file is. All must agree when it is read. */
struct kvr_snap_shape {
	uint64_t hash;	/**< a sequence hash of fixed tokens: another one, another way to hash */
	uint64_t pools; /**< digest of the pools: names, roles, block sizes */
};

/** What the head says besides. */
struct kvr_snap_about {
	uint64_t made_ms; /**< Unix time */
	uint64_t secret;  /**< the caller's: seed of what is in the tags of sessions */
	uint32_t epoch;	  /**< of the router's life that wrote it */
};

enum kvr_snap_kind {
	KVR_SNAP_PIECE = 1, /**< struct kvr_snap_piece, n hashes, n_owners of kvr_snap_owner */
	KVR_SNAP_SESSION,   /**< struct kvr_snap_session, its id */
	KVR_SNAP_LIVE,	    /**< struct kvr_snap_live */
	KVR_SNAP_WORKER,    /**< struct kvr_snap_worker, dp_size of struct kvr_snap_rank */
};

/** Consecutive blocks, of which each owner has some from the first on in one tier. */
struct kvr_snap_piece {
	uint16_t pool;	   /**< index */
	uint16_t n;	   /**< 1..512 */
	uint16_t n_owners; /**< 1..KVR_SNAP_MAX_OWNERS */
	uint8_t tier;
	uint8_t has_parent;
	uint64_t parent; /**< hash before the first, with has_parent */
};

struct kvr_snap_owner {
	uint16_t rank; /**< dense: see kvr_snap_rank; below KVR_SNAP_MAX_OWNERS */
	uint16_t n;    /**< 1..n of the piece */
};

/** Hashes of a piece that was read, and its owners. */
static inline const uint64_t *kvr_snap_hashes(const struct kvr_snap_piece *p)
{
	return (const uint64_t *)(const void *)(p + 1);
}

static inline const struct kvr_snap_owner *kvr_snap_owners(const struct kvr_snap_piece *p)
{
	return (const struct kvr_snap_owner *)(const void *)(kvr_snap_hashes(p) + p->n);
}

struct kvr_snap_session {
	uint16_t pool;
	uint16_t id_len; /**< 1..256 */
	uint32_t dp_rank;
	uint64_t worker;
	uint64_t tag;
	uint64_t ttl_ns;
	uint64_t left_ns; /**< when it was written */
};

/** A request that was live: its names. */
struct kvr_snap_live {
	uint64_t source, id; /**< the client's */
	uint64_t worker;
	uint32_t epoch; /**< the worker's life */
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
	uint64_t next;	/**< id of the next KV event: all before it are in the pieces */
	uint32_t dense; /**< its number in pieces */
	uint32_t whole; /**< 1: nothing before `next` was missing */
};

#define KVR_SNAP_MAX_PIECE  512u
#define KVR_SNAP_MAX_OWNERS 16384u
#define KVR_SNAP_MAX_RANKS  256u
#define KVR_SNAP_MAX_ID	    256u

/** Files, or what plays them. Functions as those of the C library; -1 and errno. */
struct kvr_snap_os {
	int (*open)(const char *path, int flags, mode_t mode);
	ssize_t (*write)(int fd, const void *p, size_t n);
	ssize_t (*read)(int fd, void *p, size_t n);
	int (*fsync)(int fd);
	int (*rename)(const char *from, const char *to);
};
extern const struct kvr_snap_os kvr_snap_os;

/* ---- write.c ---- */

struct kvr_snap_writer;

/**
 * Begin a snapshot that will be @p path. @p os NULL: real files.
 * @return NULL with errno: EBUSY (another writer is at it), ENAMETOOLONG, ENOMEM, or of open(2),
 * flock(2), write(2).
 */
struct kvr_snap_writer *kvr_snap_begin(const char *path, const struct kvr_snap_shape *shape,
				       const struct kvr_snap_about *about,
				       const struct kvr_snap_os *os);

/**
 * Add a record: @p fixed, then @p more (may be NULL with 0). It is kept in memory, the file is not
 * touched. After a failure all further ones fail.
 * @return 0, -ENOMEM, -E2BIG (a record of 4 GiB), or what an earlier call said.
 */
int kvr_snap_put(struct kvr_snap_writer *w, enum kvr_snap_kind kind, const void *fixed,
		 size_t fixed_len, const void *more, size_t more_len);

/** Bytes that wait in memory. */
size_t kvr_snap_pending(const struct kvr_snap_writer *w);

/** Write them out. May wait for the disk. @return 0, or -errno of write(2), above all -ENOSPC. */
int kvr_snap_flush(struct kvr_snap_writer *w);

/**
 * Write the end, force all of it to the disk, take the place of the file before it. The writer is
 * gone then, whatever happens, and so is `PATH.new`. @p bytes (or NULL): length of the file.
 * @return 0, or the first error: then the file before it is untouched.
 */
int kvr_snap_commit(struct kvr_snap_writer *w, uint64_t *bytes);

/** Give it up. NULL is fine. */
void kvr_snap_abort(struct kvr_snap_writer *w);

/* ---- read.c ---- */

/** One record: valid as long as the snapshot. */
struct kvr_snap_record {
	enum kvr_snap_kind kind;
	const void *fixed;
	const void *more; /**< n hashes (and behind them the owners), the id, or the ranks */
};

struct kvr_snap;

/**
 * Read and check @p path whole. Its records are checked, too: lengths, and ranges named above.
 * @param why gets one line for people when it fails.
 * @return 0; -ENOENT: there is none; -EBADMSG: not a snapshot, torn, or changed; -ENOTSUP: of
 * another version; -EXDEV: of other pools or another way to hash; -EFBIG: longer than @p max_bytes;
 * -ENOMEM; or of open(2), read(2).
 */
int kvr_snap_load(const char *path, const struct kvr_snap_shape *shape, uint64_t max_bytes,
		  const struct kvr_snap_os *os, struct kvr_snap **out, char *why, size_t whylen);

const struct kvr_snap_about *kvr_snap_about(const struct kvr_snap *s);
uint64_t kvr_snap_bytes(const struct kvr_snap *s);

/** Walk the records: @p pos starts at 0. @return false: there is no more. */
bool kvr_snap_next(const struct kvr_snap *s, uint64_t *pos, struct kvr_snap_record *out);

/** Give it back. NULL is fine. */
void kvr_snap_free(struct kvr_snap *s);

#endif
