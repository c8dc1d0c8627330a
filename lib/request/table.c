/* SPDX-License-Identifier: BSD-3-Clause */
/* The state table of a request: permitted events and successors of each state. */
#include "request_pvt.h"

#define E(name) (UINT32_C(1) << KVR_RQE_##name)
#define S(name) (1u << KVR_RQS_##name)

#define CLIENT	(E(CANCEL) | E(REPEATED) | E(PROBED))
#define WAITING (CLIENT | E(STOP) | E(DEADLINE) | E(CLIENT_GONE))
#define ANSWERS (E(ROOM) | E(NO_ROOM))
#define OPENING (E(OPENED) | E(NOT_OPENED) | E(UNANSWERED))

const struct row kvr_rq__table[KVR_RQ_STATES_N] = {
	[KVR_RQS_FREE] =
		{
			.go = E(ARRIVED),
			/* A decode leg is decided after its prefill leg, if it has one. */
			.next = S(UNDECIDED) | S(DECIDING),
		},
	/* Not known to a scheduler or a worker. */
	[KVR_RQS_UNDECIDED] =
		{
			.go = WAITING | ANSWERS,
			.next = S(DECIDING) | S(ENDED) | S(FREE),
		},
	/* Waits for the answer of the executor. */
	[KVR_RQS_DECIDING] =
		{
			.go = E(ROUTED) | E(QUEUED) | E(REFUSED),
			.next = S(UNDECIDED) | S(QUEUED) | S(HELD) | S(SENT) | S(ENDED) | S(FREE),
		},
	/* Not known to a worker: a message from an agent cannot concern this leg. */
	[KVR_RQS_QUEUED] =
		{
			.go = WAITING | ANSWERS | E(ADMITTED) | E(NOT_ADMITTED),
			.next = S(UNDECIDED) | S(DECIDING) | S(ENDED) | S(FREE),
		},
	/* The worker knows the session only. */
	[KVR_RQS_HELD] =
		{
			.go = CLIENT | OPENING | E(STOP) | E(LOST) | E(EXPIRED),
			.late = E(DEADLINE) | E(CLIENT_GONE),
			.next = S(UNDECIDED) | S(SENT) | S(ENDED),
		},
	[KVR_RQS_SENT] =
		{
			/* CLIENT_GONE: only the client retransmits. */
			.go = CLIENT | E(TAKEN) | E(DECLINED) | E(ITEM) | E(FIN) | E(STOP) |
			      E(LOST) | E(EXPIRED) | E(CLIENT_GONE) | E(UNACKED) | E(UNWANTED),
			/* Every copy of an open is answered. */
			.late = OPENING | E(DEADLINE),
			.next = S(UNDECIDED) | S(RUNNING) | S(ENDED) | S(FREE),
		},
	[KVR_RQS_RUNNING] =
		{
			/* UNACKED: the blocks for a decode leg may be lost. */
			.go = CLIENT | E(TAKEN) | E(ITEM) | E(FIN) | E(STOP) | E(LOST) |
			      E(EXPIRED) | E(LEASE_OVER) | E(UNWANTED) | E(UNACKED) |
			      E(CLIENT_GONE),
			.late = OPENING | E(DEADLINE),
			.next = S(UNDECIDED) | S(ENDED) | S(FREE),
		},
	[KVR_RQS_ENDED] =
		{
			.go = CLIENT | E(LINGERED) | E(FIN_ACKED) | E(ABORTED),
			.late = OPENING | E(TAKEN) | E(DECLINED) | E(ITEM) | E(FIN) | E(STOP) |
				E(LOST) | E(EXPIRED) | E(DEADLINE) | E(CLIENT_GONE) |
				E(LEASE_OVER) | E(UNACKED),
			.next = S(FREE),
		},
};

enum kvr_rq_verdict kvr_request_may(unsigned int state, unsigned int event)
{
	if (state >= KVR_RQ_STATES_N || event >= KVR_RQ_EVENTS_N)
		return KVR_RQ_NEVER;
	return look_up_verdict(state, event);
}

bool kvr_request_may_follow(unsigned int from, unsigned int to)
{
	return from < KVR_RQ_STATES_N && to < KVR_RQ_STATES_N &&
	       (from == to || (kvr_rq__table[from].next >> to & 1) != 0);
}
