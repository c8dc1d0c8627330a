/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAILING_PVT_H
#define FAILING_PVT_H

/**
 * @file
 * Outcomes of requests, rank by rank; failing_dp.c says how they are judged. Part of sched_pvt.h.
 */

/** Outcomes of one rank; see failing_dp.c. */
struct failing {
	uint64_t until;	   /* OPEN: end of the pause; CLOSED: when it has closed */
	uint64_t pause_ns; /* of this or the last opening; 0: never opened */
	uint64_t opened;   /* less sched.still_ns */
	uint64_t produced; /* likewise: its last token, or end of a request */
	uint32_t ratio;	   /* of 65,536 */
	uint32_t failed;
	uint8_t state; /* enum kvr_sched_breaker */
	bool overloaded;
	bool hangs; /* it was opened by time-outs: a probe is a trial */
};
_Static_assert(sizeof(struct failing) == 48, "bytes of each rank of a pool");

/* While n_failing is not 0, but for the first, the third and the last. */

/** The rank is another one, or gone. */
void kvr_sched__fail_forget(struct kvr_sched *s, uint32_t rank);
/** Before a choice: ranks whose pause is over. */
void kvr_sched__fail_due(struct kvr_sched *s, uint64_t now);
/** The booked request has a token, or more of them. */
void kvr_sched__fail_produced(struct kvr_sched *s, uint32_t slot, uint64_t now);
/** A request is booked at the rank. @return whether it is there on trial. */
bool kvr_sched__fail_booked(struct kvr_sched *s, uint32_t rank, uint64_t now);
void kvr_sched__fail_info(const struct kvr_sched *s, uint32_t rank,
			  struct kvr_sched_rank_info *out);

#endif
