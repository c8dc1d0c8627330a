/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_SESSION_H
#define LOAD_SESSION_H

/**
 * @file
 * Agent-like sessions: `--sessions` lanes, each living one session after the other. A session is a
 * conversation whose turns follow one another, each with the whole conversation so far:
 *
 *	lane      pause -> turn 1 (open) -> pause -> turn 2 ... -> turn K (close)     CLOSE
 *	                                          -> turn K -> SESSION_RELEASE        RELEASE
 *	                                          -> turn k, then nothing more        ABANDON
 *	engine    SESSION_OPEN ................... turns ........... SESSION_CLOSE
 *
 * With --affinity there are no actions: the id alone binds. One record holds what the client did
 * and what the engines saw, found by the session's number; lanes go on while engines wait for the
 * end of an abandoned one. Load lcore: rw.
 */

#include <stdbool.h>
#include <stdint.h>

enum load_session_end { LOAD_END_CLOSE, LOAD_END_RELEASE, LOAD_END_ABANDON };

/** One session, both sides. */
struct load_session {
	uint64_t number;  /* 0: none yet */
	uint64_t open_id; /* SESSION_OPEN and _CLOSE taken last: their repeats are known by it */
	uint64_t close_id;
	uint64_t used;	      /* when its last turn was sent */
	uint64_t used_before; /* and the one before */
	uint32_t lane;
	uint32_t turns;	   /* sent so far */
	uint32_t last;	   /* turn with which the client ends it */
	uint32_t at;	   /* engine that has it open, or LOAD_UNPINNED */
	uint32_t bound[2]; /* affinity: rank of its decode and prefill legs, or LOAD_UNPINNED */
	uint8_t end;	   /* enum load_session_end */
	bool over;	   /* the client has ended it */
	bool opened;	   /* an engine had it open */
	bool closed;	   /* and was told to close it */
	bool lost;	   /* and was killed with it */
	bool failed;	   /* one of its turns did */
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
	uint64_t session; /* number of the present one, 0: none */
	uint64_t since;	  /* of a release */
	uint8_t state;	  /* enum load_lane_state */
	uint8_t tries;
};

#endif
