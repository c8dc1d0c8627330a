/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ABORT, retransmitted by a slot until its worker acknowledges it. If the slot is needed earlier,
 * the next item of the attempt is answered UnknownRequest, which also stops the engine.
 */
#include "lcore/agent_path.h"
#include "lcore/out.h"
#include "sched/request.h"

#define ABORT_TRIES    5
#define ABORT_EVERY_NS UINT64_C(500000000)

static void abort_send(struct lcore *lc, struct pool *pool, struct kvr_flight *slot)
{
	const struct kvr_wire_abort a = {.code = slot->abort_code};

	out_message(lc, agent_path(lc, &slot->relay), KVR_ABORT, slot->relay.source, slot->relay.id,
		    kvr_flight_handle(pool->requests, slot), &a, sizeof(a));
	if (slot->abort_tries < ABORT_TRIES)
		KVR_SIM_SOMETIMES(ABORT_AGAIN);
	slot->abort_tries--;
	slot->abort_ns = lc->now_ns + ABORT_EVERY_NS;
}

void abort_start(struct lcore *lc, struct pool *pool, struct kvr_flight *slot, uint16_t code)
{
	if (slot->abort_ns != 0)
		return;
	slot->abort_code = code;
	slot->abort_tries = ABORT_TRIES;
	TAILQ_INSERT_TAIL(&pool->live.aborts, slot, abort_link);
	abort_send(lc, pool, slot);
}

void abort_stop(struct pool *pool, struct kvr_flight *slot)
{
	if (slot->abort_ns == 0)
		return;
	TAILQ_REMOVE(&pool->live.aborts, slot, abort_link);
	slot->abort_ns = 0;
}

void abort_poll(struct lcore *lc, struct pool *pool)
{
	struct kvr_flight *slot;

	/* After a stall all may be due. */
	for (uint32_t i = 0; i < BURST; i++) {
		slot = TAILQ_FIRST(&pool->live.aborts);
		if (slot == NULL || slot->abort_ns > lc->now_ns)
			break;
		TAILQ_REMOVE(&pool->live.aborts, slot, abort_link);
		if (slot->abort_tries == 0) {
			slot->abort_ns = 0;
			continue;
		}
		TAILQ_INSERT_TAIL(&pool->live.aborts, slot, abort_link);
		abort_send(lc, pool, slot);
	}
}
