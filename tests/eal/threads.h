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

/** The stages of each polling thread: threads 0 to ingress - 1 receive. */
struct threads_map {
	const char *name;
	uint32_t threads;
	uint32_t ingress;
	uint32_t event; /* thread of all pools */
	uint32_t sched;
	uint32_t queues; /* device queues; 0: one per ingress thread */
};

/** All maps; an entry without a name ends the list. */
extern const struct threads_map threads_maps[];

/**
 * Later pipeline_start*() calls use this map; NULL: the thread of the caller. Without this call the
 * environment variable KVR_THREADS names the map.
 */
void threads_use(const struct threads_map *map);

/** Map of the next start, or NULL. */
const struct threads_map *threads_used(void);

/** Let the threads run until threads_pause(). */
void threads_run(void);
void threads_pause(void);

/** Run control rounds while the threads poll, until @p done returns true. Aborts the test after a
 * minute. @p done may take frames with pipeline_next(). */
void threads_until(bool (*done)(void *arg), void *arg);

/* ---- for pipeline.c ---- */

/** Start an EAL with the threads. */
void threads_eal(const char *memory_mb);

/** Apply the map to a configuration. */
void threads_configure(struct kvr_router_conf *c);

/** Launch the threads of `rt`, paused; all else has been started. And end them. */
void threads_start(void);
void threads_stop(void);

/** Declarations for ThreadSanitizer: see threads_tsan.c. Without it they do nothing. */
void threads_show_mempools(void);
void threads_show_port(uint16_t ethdev);

/** Return true if the threads run. */
bool threads_are_running(void);

/** Wait until every thread has made two complete turns. The threads run. */
void threads_pass_two_turns(void);

/** Return true if all rings between stages are empty. The threads are paused. */
bool threads_are_idle(void);

/** One step of a wait: yields, and aborts the test after a minute. *since is 0 at first. */
void threads_wait(uint64_t *since);

#endif
