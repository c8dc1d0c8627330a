/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_FAULTS_H
#define KVR_FAULTS_H

/**
 * @file
 * What can go wrong with a request of a pair of pools, and when: the rows of tests/unit/request
 * (lib/request alone) and of tests/eal (the router, frames and timers included).
 */

enum moment {
	P_QUEUED, /* the prefill leg waits for its turn */
	SENT,	  /* what can be sent has been: both legs, or on the sync path the prefill leg */
	ACKED,	  /* and its workers have it */
	D_QUEUED, /* the prefill leg runs (sync: has ended), the decode leg waits */
	P_DONE,	  /* the prefill leg has ended, the decode leg's worker has the message */
	D_SENT,	  /* the same, not acknowledged */
	ANSWERED, /* the decode leg has produced (bootstrap: the prefill leg runs on) */
	ENDED,	  /* both */
	MOMENTS
};

enum cause {
	P_GOODBYE,
	P_SILENCE,
	P_EPOCH,
	P_REFUSES,
	P_ERROR,
	D_GOODBYE,
	D_SILENCE,
	D_EPOCH,
	D_REFUSES,
	D_ERROR,
	CANCEL,
	DEADLINE,
	EXPIRY,
	TWICE, /* every frame comes again */
	LOST,  /* DISPATCH or its acknowledgement: time passes */
	CAUSES
};

static const char *const moments[] = {"P_QUEUED", "SENT",   "ACKED",	"D_QUEUED",
				      "P_DONE",	  "D_SENT", "ANSWERED", "ENDED"};
static const char *const causes[] = {"P_GOODBYE", "P_SILENCE", "P_EPOCH", "P_REFUSES", "P_ERROR",
				     "D_GOODBYE", "D_SILENCE", "D_EPOCH", "D_REFUSES", "D_ERROR",
				     "CANCEL",	  "DEADLINE",  "EXPIRY",  "TWICE",     "LOST"};
_Static_assert(sizeof(moments) / sizeof(moments[0]) == MOMENTS, "a name each");
_Static_assert(sizeof(causes) / sizeof(causes[0]) == CAUSES, "a name each");

#define BIT(x)	  (1u << (x))
#define SYNC	  BIT(0)
#define BOOTSTRAP BIT(1)
#define BOTH	  (SYNC | BOOTSTRAP)

#endif
