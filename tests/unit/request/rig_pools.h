/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RIG_POOLS_H
#define RIG_POOLS_H

/**
 * @file
 * The world of rig.h: workers, pools, and the books of each request.
 */

#include "kvr_request.h"

#include "kvr_test.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RIG_WORKERS 6
#define RIG_CALLS   64
#define RIG_EVENTS  32
#define MS	    UINT64_C(1000000)

struct rig_worker {
	uint64_t id; /* a letter */
	struct kvr_rq_pool *pool;
	bool here;
	uint32_t epoch, dp_size;
	bool bootstrap;
	uint8_t transfer;
	const char *taint;
};

struct rig_old { /* a slot that was left behind: only its ABORT matters */
	uint64_t worker;
};

/** A request with all that its executor keeps for it. */
struct rig_call {
	struct kvr_request r;
	struct kvr_rq_msg msg;
	struct kvr_rq_pair pair;
	struct kvr_rq_session session;
	struct kvr_str required[4];
	struct kvr_hint_preferred preferred[4];
	/* the books */
	bool live, msg_kept, held, main_slot, prefill_slot, main_ended, prefill_ended, opening;
	bool repeated; /* the message has come again: it may be sent */
	bool booked[2], released[2], queued[2], aborting[2];
	uint32_t kept[2];	      /* renewals of the booking that are orders of their own */
	uint64_t at[2];		      /* worker of the booking */
	uint64_t muted;		      /* worker of an old main leg that is being stopped */
	uint32_t last_answers, tries; /* last answers to the client */
	uint32_t cancels, rejected;   /* orders */
	uint16_t code;		      /* of the last refusal */
	bool retryable;
	uint64_t detail[4];
	uint32_t outcome[2]; /* of the last booking of each leg */
	struct kvr_rq_event todo[RIG_EVENTS];
	uint32_t n_todo;
	struct kvr_sched_decision d;
};

struct rig {
	struct kvr_rq_pool a, d, p; /* aggregated; a pair */
	struct kvr_pool_conf aconf, dconf, pconf;
	struct kvr_disagg disagg;
	struct kvr_rand rand, chance;
	struct kvr_rq_ctx ctx;
	struct rig_worker w[RIG_WORKERS];
	struct kvr_stats *stats;
	struct rig_call call[RIG_CALLS];
	bool full_a, full_d, full_p; /* every request waits */
	bool no_hold, no_renew, no_slot, no_session, alone;
	enum kvr_code refuse;	     /* what the pools answer; OK: as they are */
	struct kvr_rq_pool *refuser; /* only this one; NULL: all */
	uint64_t busy;		     /* worker that is overloaded */
	uint32_t opens, closes, bound, unbound, expired, predicts;
	char text[4096];
	size_t len;
};

static void rig_say(struct rig *g, const char *fmt, ...)
{
	va_list ap;

	if (g->len + 64 > sizeof(g->text))
		return; /* a walk does not read it */
	if (g->len != 0)
		g->text[g->len++] = ' ';
	va_start(ap, fmt);
	g->len += (size_t)vsnprintf(g->text + g->len, sizeof(g->text) - g->len, fmt, ap);
	va_end(ap);
}

/** Messages since the last call. */
static inline const char *rig_said(struct rig *g)
{
	static char copy[sizeof(g->text)];

	g->text[g->len] = '\0';
	memcpy(copy, g->text, g->len + 1);
	g->len = 0;
	return copy;
}

#define RIG_SAID(g, want)                                                                          \
	do {                                                                                       \
		const char *said_ = rig_said(g);                                                   \
		if (strcmp(said_, want) != 0)                                                      \
			fprintf(stderr, "%s:%d: \"%s\"\n", __func__, __LINE__, said_);             \
		CU_ASSERT_STRING_EQUAL(said_, want);                                               \
	} while (0)

/* ---- workers ----------------------------------------------------------------------------- */

static struct rig_worker *rig_worker(struct rig *g, uint64_t id)
{
	for (uint32_t i = 0; i < RIG_WORKERS; i++)
		if (g->w[i].here && g->w[i].id == id)
			return &g->w[i];
	return NULL;
}

static bool rig_ask_worker(void *arg, const struct kvr_rq_pool *p, uint64_t id,
			   struct kvr_rq_worker *out)
{
	const struct rig_worker *w = rig_worker(arg, id);

	if (w == NULL || w->pool != p)
		return false;
	*out = (struct kvr_rq_worker){.epoch = w->epoch,
				      .dp_size = w->dp_size,
				      .bootstrap = w->bootstrap,
				      .transfer = w->transfer,
				      .weight = 1,
				      .taint = w->taint};
	return true;
}

static bool rig_ask_alone(void *arg, const struct kvr_request *r,
			  const struct kvr_sched_req *prefill, const struct kvr_sched_req *decode)
{
	(void)r, (void)prefill, (void)decode;
	return ((struct rig *)arg)->alone;
}

static enum kvr_code rig_ask_session(void *arg, const struct kvr_request *r,
				     const struct kvr_rq_pool *p)
{
	(void)r, (void)p;
	return ((struct rig *)arg)->no_session ? KVR_E_SOURCE_LIMIT : KVR_OK;
}

static void rig_count(struct rig *g)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < RIG_WORKERS; i++)
		n += g->w[i].here && g->w[i].pool == &g->p;
	kvr_disagg_workers(&g->disagg, n);
}

/* ---- pools ------------------------------------------------------------------------------- */

static bool *rig_full(struct rig *g, const struct kvr_rq_pool *p)
{
	return p == &g->a ? &g->full_a : p == &g->d ? &g->full_d : &g->full_p;
}

/* The pin of a leg, in the way of lib/sched. */
static bool rig_pin(const struct kvr_sched_req *q, uint64_t *id)
{
	const struct kvr_hints *h = q->hints;
	const uint32_t own = q->phase == KVR_ROLE_PREFILL  ? KVR_HAS(KVR_HINT_PREFILL_WORKER)
			     : q->phase == KVR_ROLE_DECODE ? KVR_HAS(KVR_HINT_DECODE_WORKER)
							   : 0;

	if ((h->present & own) != 0) {
		*id = q->phase == KVR_ROLE_PREFILL ? h->prefill_worker : h->decode_worker;
		return true;
	}
	*id = h->backend_worker;
	return (h->present & KVR_HAS(KVR_HINT_BACKEND)) != 0;
}

static void rig_route(struct rig *g, const struct kvr_rq_pool *p, const struct kvr_sched_req *q,
		      bool waited, struct kvr_sched_decision *d)
{
	const struct kvr_hints *h = q->hints;
	const struct rig_worker *found = NULL;
	uint64_t id;
	const bool pinned = rig_pin(q, &id);

	*d = (struct kvr_sched_decision){.result = KVR_SCHED_ERROR, .err = KVR_E_NO_ENDPOINTS};
	for (uint32_t i = 0; i < RIG_WORKERS; i++) {
		const struct rig_worker *w = &g->w[i];

		if (!w->here || w->pool != p || (pinned && w->id != id))
			continue;
		if (!pinned && (h->present & KVR_HAS_EXCLUDE) != 0 && w->id == h->exclude_worker)
			continue;
		if (w->id == g->busy)
			d->err = KVR_E_ALL_OVERLOADED;
		else if (found == NULL || (g->chance.state != 0 && kvr_rand_below(&g->chance, 2)))
			found = w;
	}
	if (g->refuse != KVR_OK && (g->refuser == NULL || g->refuser == p)) {
		d->err = g->refuse;
		d->reject.kind = KVR_LIMIT_RAW_ISL_TOKENS;
		d->reject.current = 7;
		d->reject.limit = 5;
		return;
	}
	if (found == NULL)
		return;
	if (*rig_full(g, p) && !waited && !q->query_only) {
		d->result = KVR_SCHED_QUEUED;
		return;
	}
	d->result = q->query_only ? KVR_SCHED_QUERY : KVR_SCHED_ROUTED;
	d->worker = found->id;
	d->dp_rank = (h->present & KVR_HAS(KVR_HINT_DP_RANK)) != 0 && pinned ? h->dp_rank : 0;
	d->overlap_blocks = 3;
}

#endif
