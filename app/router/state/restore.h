/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STATE_RESTORE_H
#define ROUTER_STATE_RESTORE_H

/**
 * @file
 * Content of the snapshot of an earlier incarnation, by worker.
 *
 * Reading a snapshot changes no table, because workers that have not registered have no ranks. The
 * data waits, ordered by worker. When a worker sends the HELLO that the snapshot describes (id,
 * epoch and all fields), its blocks go to its new ranks on the event lcore and its sessions to the
 * table on the scheduler lcore, in slices of a turn, before the worker becomes eligible. A worker
 * with another epoch or other fields gets nothing, and its part is dropped.
 *
 *   struct restore
 *     worker[ ]   in the order of the file; struct restore_worker is handed to the lcores
 *     piece[ ]    (piece of the file, blocks), grouped by (pool, former dense rank); first[ ]
 *     session[ ]  by worker
 *
 * Writers: control; restore_worker::at_* belong to the lcore that a call handed them to. Pieces are
 * read from the loaded file, which is resident, so packet lcores never fault. Budget of the lcores:
 * RESTORE_UNITS of work a turn and the rest of a piece, 30 to 42 us on a shared Zen 3
 * (`KVR_TURNS=1 test_turns_snapshot`).
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_snapshot.h"

/** Work of a turn in units of kvr_prefix_work(): 60 to 80 ns each for new blocks. */
#define RESTORE_UNITS 384u
/** Sessions per turn, 1 us each. */
#define RESTORE_SESSIONS 32u

struct restore_piece {
	const struct kvr_snap_piece *p;
	uint32_t n; /* blocks of the piece that the rank has */
};

struct restore_worker {
	const struct kvr_snap_worker *w;
	const struct kvr_snap_rank *rank; /* w->dp_size */
	const struct restore *from;
	bool taken;
	bool whole; /* its ranks were complete */
	uint32_t first_session, n_sessions;
	uint32_t at_rank, at_piece; /* event lcore: next piece to store */
	uint32_t at_session;	    /* scheduler lcore: next session to bind */
};

struct restore {
	struct kvr_snap *file;
	struct restore_worker *worker;
	struct restore_piece *piece;
	uint32_t *first; /* index of pool * KVR_SNAP_MAX_OWNERS + rank; one more at the end */
	const struct kvr_snap_session **session;
	uint32_t n_workers, n_pieces, n_sessions, n_live;
	uint32_t left; /* workers that have not registered */
	uint64_t until_ns;
};

#endif
