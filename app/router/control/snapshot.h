/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SNAPSHOT_H
#define ROUTER_SNAPSHOT_H

/**
 * @file
 * Snapshots of a running router: creation, timing, result. lib/snapshot has the file format of
 * `state_dir`/`file_prefix`.snapshot; restore.h describes its use after a restart.
 *
 * A separate thread writes snapshots every snapshot_s, on command and at the stop, while control
 * continues. It walks the prefix tables as another reader under QSBR and writes between two runs
 * while offline. All other data is copied by the lcore that owns it, through calls: cursors of
 * ranks (64 a turn), sessions (32), requests (64), 5 to 24 us each. So no packet lcore waits.
 *
 * Consistency: the cursor of a rank is copied before the first block is read. The file has the
 * blocks that the rank held then and still holds, and the agent sends every event from the cursor
 * on again, in order. If a dump of a rank began before the last block was read, its content is only
 * a hint.
 *
 * Writers: `stat` under kvr_telemetry_lock() (control and the thread); atomics as stated.
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

/** Content and result of the last snapshot. */
struct snapshot_stat {
	uint64_t written, failed; /* so far */
	uint64_t restored,
		others; /* workers that were restored; workers that registered with another epoch */
	int rc;		/* of the last one: 0 or -errno */
	uint64_t at_ns; /* its begin, on the router's clock; 0: never */
	uint64_t took_ns;
	uint64_t bytes, runs, blocks; /* blocks: of all runs, each counted once */
	uint32_t workers, sessions, live;
};

struct snapshot {
	char path[512];
	struct kvr_snap_shape shape;
	struct restore *old; /* of the last incarnation; control */
	struct snapshot_stat stat;
	uint64_t last_ns; /* control: time of the last request */
	pthread_t thread;
	bool threaded; /* a thread or a caller of snapshot_serve() writes snapshots; otherwise the
			  requester does */
	int told;      /* last logged result; the writing thread */
	sem_t wake;
	_Atomic int asked; /* 1: requested; set by any thread, cleared by the writing thread */
	_Atomic int busy;  /* a snapshot is being written */
	_Atomic int quit;  /* the router stops: abandon the current one */
};

/** Find the folder of `state_dir` or of the service manager. @return 0: writable, or none is
 * configured; -EINVAL with @p err. */
int snapshot_check(const struct router *rt, char *err, size_t errlen);

/** Two modules: read the existing snapshot before packet lcores run; run the thread that writes new
 * ones. @return 0 or -errno with @p err. */
int snapshot_open(struct router *rt, char *err, size_t errlen);
void snapshot_close(struct router *rt);
int start_snapshots(struct router *rt, char *err, size_t errlen);
void stop_snapshots(struct router *rt);

/** Request a snapshot. Any thread. @return 0; -ENOENT: no state_dir; -EALREADY: in progress. */
int snapshot_ask(struct router *rt);

/** Write the requested snapshot, if any. The snapshot thread, or a program that acts for it. */
void snapshot_serve(struct router *rt);

/** Request periodic snapshots. Control, under the lock. */
void snapshot_tick(struct router *rt);

/** Whether a snapshot is being written; if not, `stat` is of the last one. Any thread. */
bool snapshot_under_way(const struct snapshot *snapshot);

/** Write a snapshot now, on this thread. Any thread except packet lcores, one at a time, not under
 * the lock. @return 0; -ECANCELED: the router stops; -EAGAIN: the table changed too fast; or an
 * error of kvr_snap_*(). */
int snapshot_write(struct router *rt);

#endif
