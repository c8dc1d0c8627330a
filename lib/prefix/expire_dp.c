/* SPDX-License-Identifier: BSD-3-Clause */

/* Predicted blocks that end: their time is over, or their room is needed. */

#include "prefix_pvt.h"

#define RENEWED 64u   /* renewed entries moved on in search of one that was not */
#define EXPIRE	1024u /* units of work of one call of expire */
#define MOVE	2u    /* of them for an entry that was renewed */
#define END	24u   /* for one that ends, beside the blocks that go with it */

/* The rank holds nothing of the run in the predicted plane any more. */
void kvr_prefix__pred_lose(struct kvr_prefix *t, uint32_t meta, uint16_t rank)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);

	pfx_uncount(t, rank, PFX_PRED, kvr_prefix__owner_get(t, h, PFX_PRED, rank), NULL);
	kvr_prefix__owner_set(t, h, PFX_PRED, rank, 0);
	pfx_note_loss(t, rank);
	kvr_prefix__hold_drop(t, rank, meta);
}

static void end(struct kvr_prefix *t, uint32_t i)
{
	uint32_t meta = t->pred[i].meta;

	kvr_prefix__pred_lose(t, meta, t->pred[i].rank);
	kvr_prefix__pred_del(t, i);
	kvr_prefix__run_trim(t, meta);
}

/*
 * Drop the entry that would end first, or one of the first if many were renewed; false when there
 * is none.
 */
bool kvr_prefix__pred_drop_first(struct kvr_prefix *t)
{
	uint32_t renewed = 0;

	for (uint32_t n = 0, b; n < PFX_WHEEL && t->st.predicted > 0; n++) {
		b = (uint32_t)((t->tick + n) % PFX_WHEEL);
		while (t->wheel[b] != PFX_NONE) {
			uint32_t i = t->wheel[b];

			kvr_prefix__pred_requeue(t, i);
			if (t->pred[i].bucket != b && renewed++ < RENEWED)
				continue;
			end(t, i);
			pfx_add(&t->st.evicted_predicted, 1);
			return true;
		}
	}
	return false;
}

/* Not into the bucket that is being emptied. */
static void move_on(struct kvr_prefix *t, uint32_t i)
{
	t->tick++;
	kvr_prefix__pred_requeue(t, i);
	t->tick--;
}

bool kvr_prefix_expire(struct kvr_prefix *t, uint64_t now_ms)
{
	uint64_t last = now_ms / PFX_TICK_MS, before, spent = 0;

	if (last >= t->tick + PFX_WHEEL)
		t->tick = last - PFX_WHEEL + 1; /* a whole turn: every bucket is looked at once */
	for (; t->tick <= last; t->tick++) {
		uint32_t b = (uint32_t)(t->tick % PFX_WHEEL), i;

		while ((i = t->wheel[b]) != PFX_NONE) {
			if (spent >= EXPIRE)
				return false;
			if (t->pred[i].until_ms > now_ms) {
				move_on(t, i);
				spent += MOVE;
				continue;
			}
			before = t->st.blocks;
			end(t, i);
			spent += END + before - t->st.blocks;
			pfx_add(&t->st.expired, 1);
		}
	}
	return true;
}
