/* SPDX-License-Identifier: BSD-3-Clause */

/* Predictions that end: at their time to live, or because their memory is needed. */

#include "prefix_pvt.h"

#define RENEWED 64u   /* renewed entries requeued in search of one that was not renewed */
#define EXPIRE	1024u /* units of work of one kvr_prefix_expire() */
#define MOVE	2u    /* units for a renewed entry */
#define END	24u   /* units for an entry that ends, in addition to its blocks */

/* Remove all blocks of the rank in the predicted plane of the run. */
void kvr_prefix__pred_disown(struct kvr_prefix *table, uint32_t meta, uint16_t rank)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);

	pfx_uncount(table, rank, PFX_PRED, kvr_prefix__owner_get(table, hdr, PFX_PRED, rank), NULL);
	kvr_prefix__owner_set(table, hdr, PFX_PRED, rank, 0);
	pfx_note_loss(table, rank);
	kvr_prefix__held_drop(table, rank, meta);
}

static void end_prediction(struct kvr_prefix *table, uint32_t i)
{
	uint32_t meta = table->pred[i].meta;

	kvr_prefix__pred_disown(table, meta, table->pred[i].rank);
	kvr_prefix__pred_del(table, i);
	kvr_prefix__run_trim(table, meta);
}

/*
 * Drop the entry that ends first, or one of the first if many were renewed. @return false if there
 * is none.
 */
bool kvr_prefix__pred_drop_first(struct kvr_prefix *table)
{
	uint32_t renewed = 0;

	for (uint32_t n = 0, b; n < PFX_WHEEL && table->st.predicted > 0; n++) {
		b = (uint32_t)((table->tick + n) % PFX_WHEEL);
		while (table->wheel[b] != PFX_NONE) {
			uint32_t i = table->wheel[b];

			kvr_prefix__pred_requeue(table, i);
			if (table->pred[i].bucket != b && renewed++ < RENEWED)
				continue;
			end_prediction(table, i);
			pfx_add(&table->st.evicted_predicted, 1);
			return true;
		}
	}
	return false;
}

/* Requeue the entry, but not into the bucket that is being emptied. */
static void requeue_later(struct kvr_prefix *table, uint32_t i)
{
	table->tick++;
	kvr_prefix__pred_requeue(table, i);
	table->tick--;
}

bool kvr_prefix_expire(struct kvr_prefix *table, uint64_t now_ms)
{
	uint64_t last = now_ms / PFX_TICK_MS, before, spent = 0;

	if (last >= table->tick + PFX_WHEEL)
		table->tick =
			last - PFX_WHEEL + 1; /* a full rotation: every bucket is visited once */
	for (; table->tick <= last; table->tick++) {
		uint32_t b = (uint32_t)(table->tick % PFX_WHEEL), i;

		while ((i = table->wheel[b]) != PFX_NONE) {
			if (spent >= EXPIRE)
				return false;
			if (table->pred[i].until_ms > now_ms) {
				requeue_later(table, i);
				spent += MOVE;
				continue;
			}
			before = table->st.blocks;
			end_prediction(table, i);
			spent += END + before - table->st.blocks;
			pfx_add(&table->st.expired, 1);
		}
	}
	return true;
}
