/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAILING_PVT_H
#define FAILING_PVT_H

/**
 * @file
 * Outcomes of requests per rank; failing_dp.c has the rules. Part of sched_pvt.h.
 */

/** Outcomes of one rank; see failing_dp.c. */
struct failing {
	uint64_t until;	   /* OPEN: end of the pause; CLOSED: time of closing */
	uint64_t pause_ns; /* current or last pause; 0: never opened */
	uint64_t opened;   /* less sched.still_ns */
	uint64_t produced; /* less sched.still_ns: last token or end of a request */
	uint32_t ratio;	   /* of 65,536 */
	uint32_t failed;
	uint8_t state; /* enum kvr_sched_breaker */
	bool overloaded;
	bool hangs; /* opened by time-outs: a probe is a trial */
};
_Static_assert(sizeof(struct failing) == 48, "48 bytes per rank");

/* fail_due and fail_booked require n_failing != 0. */
/** Reset the state of a rank that was replaced or removed. */
void kvr_sched__fail_forget(struct kvr_sched *s, uint32_t rank);
/** Before a choice: process pauses that have ended. */
void kvr_sched__fail_due(struct kvr_sched *s, uint64_t now);
/** After new tokens of a booked request. */
void kvr_sched__fail_produced(struct kvr_sched *s, uint32_t slot, uint64_t now);
/** After a booking at the rank. @return true if the request is a trial. */
bool kvr_sched__fail_booked(struct kvr_sched *s, uint32_t rank, uint64_t now);
void kvr_sched__fail_info(const struct kvr_sched *s, uint32_t rank,
			  struct kvr_sched_rank_info *out);

#endif
