/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_SESSION_H
#define LOAD_SESSION_H

/**
 * @file
 * Sessions of agents: `--sessions` lanes, each with one session after the other. A session is a
 * conversation; each turn has the whole conversation so far:
 *
 * 	lane      pause -> turn 1 (open) -> pause -> turn 2 ... -> turn K (close)     CLOSE
 * 	                                          -> turn K -> SESSION_RELEASE        RELEASE
 * 	                                          -> turn k, then nothing more        ABANDON
 * 	engine    SESSION_OPEN ................... turns ........... SESSION_CLOSE
 *
 * With --affinity there are no actions: the id alone binds. A record, found by the session's
 * number, holds what the client sent and the engines received. Lanes go on while engines wait for
 * the end of an abandoned session. Load lcore: rw.
 */

#include <stdbool.h>
#include <stdint.h>

enum load_session_end { LOAD_END_CLOSE, LOAD_END_RELEASE, LOAD_END_ABANDON };

/** One session, both sides. */
struct load_session {
	uint64_t number;  /* 0: none yet */
	uint64_t open_id; /* ids of the last SESSION_OPEN and _CLOSE, to recognise repetitions */
	uint64_t close_id;
	uint64_t used;	      /* time of its last turn */
	uint64_t used_before; /* time of the turn before */
	uint32_t lane;
	uint32_t turns;	   /* sent so far */
	uint32_t last;	   /* number of the turn that ends it */
	uint32_t at;	   /* engine that has it open, or LOAD_UNPINNED */
	uint32_t bound[2]; /* affinity: rank of its decode and prefill legs, or LOAD_UNPINNED */
	uint8_t end;	   /* enum load_session_end */
	bool over;	   /* ended by the client */
	bool opened;	   /* an engine opened it */
	bool closed;	   /* and received a close */
	bool lost;	   /* and was killed while it was open */
	bool failed;	   /* one of its turns failed */
};

enum load_lane_state {
	LOAD_LANE_PAUSE,
	LOAD_LANE_TURN,
	LOAD_LANE_RELEASE,
	LOAD_LANE_RELEASED,
	LOAD_LANE_OFF,
};

/** One lane of sessions. */
struct load_lane {
	uint64_t session; /* number of the current one; 0: none */
	uint64_t since;	  /* of a release */
	uint8_t state;	  /* enum load_lane_state */
	uint8_t tries;
};

#endif
