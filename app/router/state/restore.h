/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STATE_RESTORE_H
#define ROUTER_STATE_RESTORE_H

/**
 * @file
 * What the snapshot of an earlier life has, worker by worker.
 *
 * Nothing of it is put anywhere when it is read: a worker that is not there yet has no ranks. It
 * waits, ordered by worker, and when a worker says HELLO in the life that the snapshot knows
 * (id, epoch, everything it says of itself), its blocks go into its new ranks on the event lcore
 * and its sessions into the table on the scheduler lcore, in slices of a turn, before it may be
 * chosen: its first request finds what the last one left. A worker that comes in another life, or
 * says anything else, gets nothing, and its part is forgotten.
 *
 *   struct restore
 *     worker[ ]   in the file's order; struct restore_worker is handed to the lcores
 *     piece[ ]    (piece of the file, blocks), grouped by (pool, dense rank of then); first[ ]
 *     session[ ]  by worker
 *
 * Writers: control (read, take, forget); of restore_worker::at_* the lcore that a call has given it
 * to. The pieces are read where the file was read to: memory that is there, so packet lcores never
 * wait for a page. Budget of the lcores: RESTORE_UNITS of work a turn, and what is left of a piece:
 * 30 to 42 us on a Zen 3 that others used, too (`KVR_TURNS=1 test_turns_snapshot`).
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_snapshot.h"

/** A turn's worth of kvr_prefix_work(), 60 to 80 ns each where all is new. */
#define RESTORE_UNITS 384u
/** Sessions a turn, 1 us each. */
#define RESTORE_SESSIONS 32u

struct restore_piece {
	const struct kvr_snap_piece *p;
	uint32_t n; /* blocks of it that the rank has */
};

struct restore_worker {
	const struct kvr_snap_worker *w;
	const struct kvr_snap_rank *rank; /* w->dp_size */
	const struct restore *from;
	bool taken;
	bool whole; /* nothing of its ranks was missing */
	uint32_t first_session, n_sessions;
	uint32_t at_rank, at_piece; /* event lcore: next to store */
	uint32_t at_session;	    /* scheduler lcore: next to bind */
};

struct restore {
	struct kvr_snap *file;
	struct restore_worker *worker;
	struct restore_piece *piece;
	uint32_t *first; /* of pool * KVR_SNAP_MAX_OWNERS + rank; one more at the end */
	const struct kvr_snap_session **session;
	uint32_t n_workers, n_pieces, n_sessions, n_live;
	uint32_t left; /* workers nobody has taken */
	uint64_t until_ns;
};

#endif
