/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef THREADS_H
#define THREADS_H

/**
 * @file
 * Real polling threads behind pipeline.h: the router's stages run on EAL threads, several of them
 * on one CPU, and the test's thread plays control, clients and agents.
 *
 *   paused   (where every pipeline_*() call leaves it) each thread stands between two turns; the
 *            test may look at and change everything, and call_lcore() runs on its own thread
 *   running  inside pipeline_turn(), which returns when nothing moves any more, and between
 *            threads_run() and threads_pause(): the test may send, take what came out, and call
 *            control, and must leave the router's structures alone
 *
 * A thread yields after every turn, as it shares its CPU, and a test waits for conditions, never
 * for time: a machine with one slow CPU runs the same tests. Time stands still as on one thread.
 * All from the thread that started the EAL.
 */

#include <stdbool.h>
#include <stdint.h>

#include "state/router.h"

#define THREADS_MAX 4u

/** Which polling thread does what: threads 0 to ingress - 1 receive. */
struct threads_map {
	const char *name;
	uint32_t threads;
	uint32_t ingress;
	uint32_t event; /* thread of all pools */
	uint32_t sched;
	uint32_t queues; /* of the device; 0: one for each of those */
};

/** All maps there are; an entry without name ends it. */
extern const struct threads_map threads_maps[];

/**
 * Routers that pipeline_start*() makes from now on poll with this map; NULL: on the caller's
 * thread. Without this call the environment's KVR_THREADS, the name of a map, says it.
 */
void threads_use(const struct threads_map *map);

/** Map of the next start, or NULL. */
const struct threads_map *threads_used(void);

/** Let the threads run until threads_pause(). */
void threads_run(void);
void threads_pause(void);

/** Run control rounds beside the threads, which run, until @p done says so; aborts the test when
 * it never does (a minute). @p done may take frames with pipeline_next(). */
void threads_until(bool (*done)(void *arg), void *arg);

/* ---- for pipeline.c ---- */

/** Start an EAL that has the threads. */
void threads_eal(const char *memory_mb);

/** Put the map into a configuration that has been read. */
void threads_configure(struct kvr_router_conf *c);

/** Launch the threads of `rt`, which is otherwise started, paused; and end them. */
void threads_start(void);
void threads_stop(void);

/** ThreadSanitizer: see threads_tsan.c. Nothing without it. */
void threads_show_mempools(void);
void threads_show_port(uint16_t ethdev);

/** Whether they run. */
bool threads_running(void);

/** Every thread has made two whole turns since the call. They run. */
void threads_two_turns(void);

/** No ring between stages holds anything. Paused. */
bool threads_idle(void);

/** One look at the clock of a wait: yields, and aborts the test when it has lasted a minute.
 * *since is 0 at first. */
void threads_wait(uint64_t *since);

#endif
