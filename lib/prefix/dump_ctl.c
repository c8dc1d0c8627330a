/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Dump: walks the headers by number. If content moves to another header during the walk (a split,
 * or a run shortened while its owners are in a bitmap), the new header gets a higher birth number.
 * Headers born after the start of the last pass are walked again, until a pass sees no birth.
 */

#include "prefix_pvt.h"

#include <errno.h>

#define PASSES 16

struct dump {
	struct kvr_prefix *t;
	unsigned int thread_id;
	kvr_prefix_dump_cb cb;
	bool (*rest)(void *ctx);
	void *ctx;
	uint64_t sh[PFX_RUN];
	uint64_t hidden[PFX_WORDS];
	uint32_t owner[KVR_PREFIX_MAX_RANKS + 64];
};

static uint32_t owners_of(struct dump *dump, struct pfx_hdr *hdr, uint32_t plane)
{
	const struct kvr_prefix *table = dump->t;
	struct pfx_oset owners = pfx_oset(table, hdr, plane);
	uint32_t n = 0, big, words;
	_Atomic uint32_t *w;

	if (owners.big == NULL)
		return 0;
	/* Acquire: pairs with the release in grow_big(). */
	big = atomic_load_explicit(owners.big, memory_order_acquire);
	w = big == PFX_NONE ? owners.owner : pfx_parts(table, pfx_big(table, big));
	words = big == PFX_NONE ? owners.inl : table->big_parts;
	for (uint32_t i = 0; i < words; i++) {
		uint32_t x = pfx_ld32(&w[i]);

		if (x != 0)
			dump->owner[n++] = x;
	}
	/* Pairs with the release in big_set(): a rank that becomes a full owner is not missed. */
	atomic_thread_fence(memory_order_acquire);
	for (uint32_t i = 0; big != PFX_NONE && i < table->big_words; i++) {
		for (uint64_t b = atomic_load_explicit(&pfx_big(table, big)->bits[i],
						       memory_order_relaxed);
		     b != 0 && n < RTE_DIM(dump->owner); b &= b - 1)
			dump->owner[n++] =
				PFX_OWNER(i * 64 + (uint32_t)__builtin_ctzll(b), PFX_RUN);
	}
	return n;
}

/* Ranks that are being cleared own nothing, whatever the runs contain. */
static void add_hidden(struct dump *dump)
{
	for (uint32_t i = 0; i < dump->t->big_words; i++)
		/* Acquire: pairs with the release in show_rank(). */
		dump->hidden[i] |= atomic_load_explicit(&dump->t->hidden[i], memory_order_acquire);
}

/* Dump all pieces of one header: content before owners, as for a score. */
static int dump_hdr(struct dump *dump, struct pfx_hdr *hdr)
{
	struct kvr_prefix_piece piece = {.has_parent = hdr->has_parent, .parent = hdr->parent_sh};
	uint32_t len = pfx_len(hdr), n;

	for (uint32_t i = 0; i < len; i++)
		dump->sh[i] = pfx_rd(pfx_sh(dump->t, hdr, i));
	piece.sh = dump->sh;
	memset(dump->hidden, 0, dump->t->big_words * sizeof(*dump->hidden));
	add_hidden(dump);
	for (uint32_t plane = 0; plane < KVR_TIERS; plane++) {
		n = owners_of(dump, hdr, plane);
		/*
		 * Pairs with the release in hide_rank(): owners stored later are seen together with
		 * the bit.
		 */
		atomic_thread_fence(memory_order_acquire);
		add_hidden(dump);
		piece.tier = (uint8_t)plane;
		for (uint32_t i = 0; i < n; i++) {
			piece.rank = PFX_RANK(dump->owner[i]);
			piece.n = RTE_MIN(PFX_LEAD(dump->owner[i]), len);
			if (dump->hidden[piece.rank / 64] >> (piece.rank % 64) & 1)
				continue;
			if (piece.n > 0 && !dump->cb(dump->ctx, &piece))
				return -ECANCELED;
		}
	}
	return 0;
}

/* Dump headers born after @p after. All of them have numbers below `fresh`. */
static int dump_pass(struct dump *dump, uint64_t after)
{
	struct kvr_prefix *table = dump->t;
	const uint32_t fresh = pfx_ld32(&table->hdrs.fresh);
	int ret;

	for (uint32_t i = 1; i < fresh; i++) {
		/* Acquire: pairs with the release in kvr_prefix__run_publish(). */
		if (atomic_load_explicit(&table->birth[i], memory_order_acquire) <= after)
			continue;
		ret = dump_hdr(dump, &table->hdr[i]);
		rte_rcu_qsbr_quiescent(table->qsbr, dump->thread_id);
		if (ret == 0 && dump->rest != NULL && !dump->rest(dump->ctx))
			ret = -ECANCELED;
		if (ret < 0)
			return ret;
	}
	return 0;
}

int kvr_prefix_dump(struct kvr_prefix *table, unsigned int thread_id, kvr_prefix_dump_cb cb,
		    bool (*rest)(void *ctx), void *ctx)
{
	struct dump dump = {.t = table, .thread_id = thread_id, .cb = cb, .rest = rest, .ctx = ctx};
	uint64_t after = 0, born;
	int ret;

	for (int n = 0; n < PASSES; n++) {
		/*
		 * Acquire: pairs with the release in kvr_prefix__run_publish(); `fresh` is above
		 * all of them.
		 */
		born = atomic_load_explicit(&table->births, memory_order_acquire);
		if (n > 0 && born == after)
			return 0;
		ret = dump_pass(&dump, after);
		if (ret < 0)
			return ret;
		after = born;
	}
	return -EAGAIN;
}
