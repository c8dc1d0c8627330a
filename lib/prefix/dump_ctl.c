/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Dump. Headers are walked by number. What moves to another header while the walk is on (split,
 * shortened under a bitmap) gets a higher birth number there, so the headers born since the last
 * pass began are walked again, until a pass saw no birth.
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

static uint32_t owners_of(struct dump *d, struct pfx_hdr *h, uint32_t plane)
{
	const struct kvr_prefix *t = d->t;
	struct pfx_oset o = pfx_oset(t, h, plane);
	uint32_t n = 0, big, words;
	_Atomic uint32_t *w;

	if (o.big == NULL)
		return 0;
	/* Acquire: pairs with the release in grow_big(). */
	big = atomic_load_explicit(o.big, memory_order_acquire);
	w = big == PFX_NONE ? o.owner : pfx_parts(t, pfx_big(t, big));
	words = big == PFX_NONE ? o.inl : t->big_parts;
	for (uint32_t i = 0; i < words; i++) {
		uint32_t x = pfx_ld32(&w[i]);

		if (x != 0)
			d->owner[n++] = x;
	}
	/* Pairs with the release in big_set(): a rank that turns full is not missed. */
	atomic_thread_fence(memory_order_acquire);
	for (uint32_t i = 0; big != PFX_NONE && i < t->big_words; i++) {
		for (uint64_t b =
			     atomic_load_explicit(&pfx_big(t, big)->bits[i], memory_order_relaxed);
		     b != 0 && n < RTE_DIM(d->owner); b &= b - 1)
			d->owner[n++] = PFX_OWNER(i * 64 + (uint32_t)__builtin_ctzll(b), PFX_RUN);
	}
	return n;
}

/* Ranks that are being cleared now have nothing, whatever stands in the runs. */
static void add_hidden(struct dump *d)
{
	for (uint32_t i = 0; i < d->t->big_words; i++)
		/* Acquire: pairs with the release in show(). */
		d->hidden[i] |= atomic_load_explicit(&d->t->hidden[i], memory_order_acquire);
}

/* All pieces of one header; content before owners, as for a score. */
static int dump_hdr(struct dump *d, struct pfx_hdr *h)
{
	struct kvr_prefix_piece p = {.has_parent = h->has_parent, .parent = h->parent_sh};
	uint32_t len = pfx_len(h), n;

	for (uint32_t i = 0; i < len; i++)
		d->sh[i] = pfx_rd(pfx_sh(d->t, h, i));
	p.sh = d->sh;
	memset(d->hidden, 0, d->t->big_words * sizeof(*d->hidden));
	add_hidden(d);
	for (uint32_t plane = 0; plane < KVR_TIERS; plane++) {
		n = owners_of(d, h, plane);
		/* Pairs with the release in hide(): owners stored since are seen with it. */
		atomic_thread_fence(memory_order_acquire);
		add_hidden(d);
		p.tier = (uint8_t)plane;
		for (uint32_t i = 0; i < n; i++) {
			p.rank = PFX_RANK(d->owner[i]);
			p.n = RTE_MIN(PFX_LEAD(d->owner[i]), len);
			if (d->hidden[p.rank / 64] >> (p.rank % 64) & 1)
				continue;
			if (p.n > 0 && !d->cb(d->ctx, &p))
				return -ECANCELED;
		}
	}
	return 0;
}

/* Headers that were born after @p after; none of them lies behind the first that was never taken.
 */
static int pass(struct dump *d, uint64_t after)
{
	struct kvr_prefix *t = d->t;
	const uint32_t fresh = pfx_ld32(&t->hdrs.fresh);
	int ret;

	for (uint32_t i = 1; i < fresh; i++) {
		/* Acquire: pairs with the release in kvr_prefix__run_publish(). */
		if (atomic_load_explicit(&t->birth[i], memory_order_acquire) <= after)
			continue;
		ret = dump_hdr(d, &t->hdr[i]);
		rte_rcu_qsbr_quiescent(t->qsbr, d->thread_id);
		if (ret == 0 && d->rest != NULL && !d->rest(d->ctx))
			ret = -ECANCELED;
		if (ret < 0)
			return ret;
	}
	return 0;
}

int kvr_prefix_dump(struct kvr_prefix *t, unsigned int thread_id, kvr_prefix_dump_cb cb,
		    bool (*rest)(void *ctx), void *ctx)
{
	struct dump d = {.t = t, .thread_id = thread_id, .cb = cb, .rest = rest, .ctx = ctx};
	uint64_t after = 0, born;
	int ret;

	for (int n = 0; n < PASSES; n++) {
		/* The same; `fresh` is above all of them. */
		born = atomic_load_explicit(&t->births, memory_order_acquire);
		if (n > 0 && born == after)
			return 0;
		ret = pass(&d, after);
		if (ret < 0)
			return ret;
		after = born;
	}
	return -EAGAIN;
}
