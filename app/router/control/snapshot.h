/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SNAPSHOT_H
#define ROUTER_SNAPSHOT_H

/**
 * @file
 * Snapshots of a running router: who makes them, when, and what came of it. The file is that of
 * lib/snapshot, `state_dir`/`file_prefix`.snapshot; what the next life does with it is restore.h.
 *
 * A thread of its own makes them, so that control goes on meanwhile: every snapshot_s, on command,
 * and at the end. It walks the prefix tables as one more reader under QSBR and writes between two
 * runs, off line; all else it has the lcore that owns it copy, by calls: cursors of ranks (64 a
 * turn), sessions (32), requests (64), 5 to 24 us each. So no packet lcore waits, and none does
 * more than such a copy a turn.
 *
 * What makes it exact: the cursor of a rank is taken before the first block is read. What the rank
 * held then and holds still is in the file, and every event from the cursor on is told again by its
 * agent, in order. A rank of which a dump has begun until the last block was read is no more than a
 * hint.
 *
 * Writers: `stat` under the lock of lib/ctl (control and the thread); the atomics as said.
 */

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_snapshot.h"

struct router;
struct restore;

/** What the last snapshot had, and how it went. */
struct snapshot_stat {
	uint64_t written, failed;  /* ever */
	uint64_t restored, others; /* workers that took their part; that came in another life */
	int rc;			   /* of the last one: 0 or -errno */
	uint64_t at_ns;		   /* when it began, on the router's clock; 0: never */
	uint64_t took_ns;
	uint64_t bytes, runs, blocks; /* blocks: of all runs, each once */
	uint32_t workers, sessions, live;
};

struct snapshot {
	char path[512];
	struct kvr_snap_shape shape;
	struct restore *old; /* of the life before; control */
	struct snapshot_stat stat;
	uint64_t last_ns; /* control: when one was last asked for */
	pthread_t thread;
	bool threaded; /* `thread` runs, or who calls snapshot_serve(); else who asks does it */
	int told;      /* what the last one came to; who serves */
	sem_t wake;
	_Atomic int asked; /* 1: one is wanted; anybody: w, the thread takes it */
	_Atomic int busy;  /* the thread is at it */
	_Atomic int quit;  /* the end: what is under way is given up */
};

/** The folder that `state_dir`, or the service manager, names. @return 0: it is there and may be
 * written to, or none is named; -EINVAL, @p err. */
int snapshot_check(const struct router *rt, char *err, size_t errlen);

/** Two modules: before packet lcores run, read the snapshot there is; beside them, the thread that
 * makes more. @return 0 or -errno, @p err. */
int snapshot_open(struct router *rt, char *err, size_t errlen);
void snapshot_close(struct router *rt);
int start_snapshots(struct router *rt, char *err, size_t errlen);
void stop_snapshots(struct router *rt);

/** Ask for one. Any thread. @return 0; -ENOENT: there is no state_dir; -EALREADY: under way. */
int snapshot_ask(struct router *rt);

/** Make the one that was asked for, if one was. The thread, or who plays it. */
void snapshot_serve(struct router *rt);

/** What is due by time. Control, under the lock. */
void snapshot_tick(struct router *rt);

/** Whether one is being made; when not, `stat` is of the last one. Any thread. */
bool snapshot_under_way(const struct snapshot *s);

/**
 * Make one, now, here. Any thread but a packet lcore's, one at a time; not under the lock.
 * @return 0; -ECANCELED: the router ends; -EAGAIN: the table changed too fast; or of kvr_snap_*().
 */
int snapshot_write(struct router *rt);

#endif
