/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ROUTE messages: check, hints, hashes, score. A message of one frame is used in place at once; a
 * fragmented one is read by read_dp.c over some turns.
 */
#include "ingress/fragment.h"
#include "ingress/route.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_hash.h"
#include "kvr_message.h"

/* ---- hints ---- */

/* The id stays in the memory of the hints. */
static void copy_session(struct job *j, const struct kvr_hints *h)
{
	j->session = (struct job_session){.action = h->session.action,
					  .timeout_s = h->session.timeout_s};
	j->session.key = (struct kvr_session_key){h->session.id.p, h->session.id.len, 0};
	if (h->session.id.len != 0 && j->pool->session_table != NULL)
		kvr_session_key(j->pool->session_table, h->session.id.p, h->session.id.len,
				&j->session.key);
}

/* ---- hashes ---- */

enum kvr_code job_hash_buf(struct lcore *lc, struct job *j, uint32_t n_hashes)
{
	j->hash_buf = hashes_get(lc->rt, n_hashes);
	return j->hash_buf != NULL ? KVR_OK : KVR_E_NO_MEMORY;
}

/* Iterator over the multimodal hashes of the hints for lib/hash. */
static bool next_mm(void *arg, struct kvr_hash_mm *out)
{
	struct kvr_mm mm;

	if (!kvr_mm_next(arg, &mm))
		return false;
	*out = (struct kvr_hash_mm){.block = mm.block, .n = mm.n, .hashes = mm.hashes};
	return true;
}

void job_hash_begin(const struct job *j, struct kvr_tlv_iter *mm, struct kvr_hash_stream *stream)
{
	const struct kvr_hints *h = &j->msg.hints;
	const struct kvr_hash_params params = {
		.seed = kvr_hash_seed(h->lora.p, h->lora.len, h->cache_namespace.p,
				      h->cache_namespace.len),
		.block_size = j->pool->block_size,
		.eagle = (j->flags & KVR_REQ_F_EAGLE) != 0 || j->pool->eagle,
		.mm_next = h->n_mm != 0 ? next_mm : NULL,
		.mm_arg = mm,
	};

	*mm = kvr_tlv_begin(h->tlvs, h->tlvs_len);
	kvr_hash_stream_init(stream, &params, NULL);
}

/* Find the hashes of a message of one frame: in place, or computed from its tokens. */
static enum kvr_code find_hashes(struct lcore *lc, struct job *j, const struct kvr_message *q)
{
	const uint32_t most = q->fixed.n_tokens / j->pool->block_size;
	struct kvr_hash_stream stream;
	struct kvr_tlv_iter mm;
	enum kvr_code code;

	j->n_hashes = q->fixed.n_hashes;
	j->hashes = q->hashes;
	if (j->n_hashes != 0)
		return KVR_OK;
	code = job_hash_buf(lc, j, most);
	if (code != KVR_OK)
		return code;
	job_hash_begin(j, &mm, &stream);
	if (kvr_hash_stream_add(&stream, q->tokens, q->fixed.n_tokens, NULL, j->hash_buf->sh,
				most) < 0)
		return KVR_E_HINT;
	j->hashes = j->hash_buf->sh;
	j->n_hashes = stream.n_blocks;
	return KVR_OK;
}

/* ---- jobs ---- */

enum kvr_code job_unknown_pool(const struct router *rt, uint32_t id, struct refusal *why)
{
	why->detail[0] = id;
	why->detail[1] = rt->n_pools;
	why->text = rt->pool_names;
	return KVR_E_UNKNOWN_POOL;
}

enum kvr_code job_check(const struct pool *p, const struct kvr_wire_request *f, struct refusal *why)
{
	if (f->n_hashes != 0 && (uint64_t)f->n_hashes * p->block_size > f->isl)
		return KVR_E_INVALID_REQUEST;
	if (f->isl / p->block_size <= p->max_prompt_blocks)
		return KVR_OK;
	why->detail[0] = f->isl / p->block_size;
	why->detail[1] = p->max_prompt_blocks;
	why->detail[2] = p->block_size;
	return KVR_E_PROMPT_TOO_LONG;
}

enum kvr_code job_begin(struct lcore *lc, struct job *j, const struct kvr_wire_hdr *h,
			const struct kvr_message *q, const void *raw)
{
	struct kvr_hints *hints = &j->msg.hints;
	enum kvr_code code;

	j->source = h->source;
	j->id = h->id;
	j->kind = h->kind;
	j->flags = q->fixed.flags;
	j->isl = q->fixed.isl;
	/* This lcore will look the name up when the batch is scored. */
	if (j->pool->sched_lcore == lc)
		kvr_flight_prefetch_name(j->pool->requests, j->source, j->id);
	j->msg.book = (j->flags & KVR_REQ_F_BOOK) != 0;
	j->msg.direct = (j->flags & (KVR_REQ_F_DIRECT | KVR_REQ_F_TRACK)) == KVR_REQ_F_DIRECT;
	j->msg.quiet = (j->flags & (KVR_REQ_F_QUIET | KVR_REQ_F_QUERY | KVR_REQ_F_DIRECT |
				    KVR_REQ_F_BOOK | KVR_REQ_F_AWAY)) == KVR_REQ_F_QUIET;
	j->deadline_ns = q->fixed.deadline_ms == 0
				 ? 0
				 : lc->now_ns + q->fixed.deadline_ms * UINT64_C(1000000);
	j->msg.req = (struct kvr_sched_req){
		.isl = j->isl,
		.exec_isl = kvr_request_exec_isl(&q->fixed),
		.query_only = (j->flags & KVR_REQ_F_QUERY) != 0,
		.probe = (j->flags & KVR_REQ_F_HEALTH) != 0,
		.phase = (enum kvr_role)q->fixed.phase,
	};
	code = kvr_hints_parse(raw, q->fixed.hints_len, KVR_HINTS_ROUTE, hints, &j->lists);
	if (code == KVR_OK && kvr_hints_say_away(hints) != ((j->flags & KVR_REQ_F_AWAY) != 0))
		code = KVR_E_HINT;
	if (code == KVR_OK)
		copy_session(j, hints);
	if (q->fixed.expected_output_tokens != KVR_NONE32) {
		hints->present |= KVR_HAS_EXPECTED_OUTPUT;
		hints->expected_output_tokens = q->fixed.expected_output_tokens;
	}
	j->tlvs = raw;
	j->tlvs_len = q->fixed.hints_len;
	j->hints_off = q->hints_off;
	j->body_off = q->body_off;
	return code;
}

enum kvr_code job_end(struct lcore *lc, struct job *j, const struct kvr_path *from,
		      uint16_t client_frame)
{
	enum kvr_code code = KVR_OK;

	j->msg.req.sh = j->hashes;
	j->msg.req.n = j->n_hashes;
	if (j->pool->prefill != NULL && j->kind == KVR_ROUTE)
		code = pair_attach(j);
	if (unlikely(code != KVR_OK))
		return code;
	j->client = *from;
	j->client.max_frame = client_frame != 0 ? client_frame : KVR_WIRE_DEF_FRAME;
	j->lcore = lc->index;
	lc->job[lc->n_jobs++] = j;
	return KVR_OK;
}

bool job_compared(const struct job *j)
{
	return j->kind == KVR_ROUTE && !j->msg.req.query_only;
}

enum kvr_code job_add(struct lcore *lc, const struct kvr_path *from, struct rte_mbuf *m,
		      struct refusal *why)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_slice body = {kvr_frame_body(h), h->frag_len};
	struct kvr_message q;
	enum kvr_code code;
	struct pool *p;
	struct job *j;

	code = kvr_request_parse_slices(&body, 1, h->kind, &q);
	if (unlikely(code != KVR_OK))
		return code;
	p = pool_by_id(lc->rt, q.fixed.pool);
	if (unlikely(p == NULL))
		return job_unknown_pool(lc->rt, q.fixed.pool, why);
	code = job_check(p, &q.fixed, why);
	if (unlikely(code != KVR_OK))
		return code;
	j = job_new(lc, p);
	if (unlikely(j == NULL))
		return KVR_E_NO_MEMORY;
	code = job_begin(lc, j, h, &q, q.hints);
	if (likely(code == KVR_OK))
		code = find_hashes(lc, j, &q);
	if (likely(code == KVR_OK)) /* overlaps with the digest */
		kvr_prefix_prefetch(p->prefix, j->hashes, j->n_hashes);
	/* Requests that are not remembered need no digest. */
	j->digest = job_compared(j) ? kvr_request_digest(&body, 1) : 0;
	if (likely(code == KVR_OK))
		code = job_end(lc, j, from, q.fixed.client_frame);
	if (unlikely(code != KVR_OK)) {
		job_drop(lc, j);
		return code;
	}
	j->frame = m;
	return KVR_OK;
}

/* ---- scores ---- */

static void job_put(struct lcore *lc, struct job *j)
{
	const struct note n = {.type = j->kind == KVR_ROUTE ? NOTE_ROUTE : NOTE_LOADS, .job = j};

	if (likely(notes_put(j->pool, &n) == 0))
		return;
	out_reject(lc, &j->client, j->kind, j->source, j->id,
		   &(const struct refusal){.code = KVR_E_BUSY});
	fragments_back(lc, j);
	job_drop(lc, j);
}

/* Score the prefill legs of @p n jobs. */
static void score_prefill(const struct pool *p, struct job *const job[], uint32_t n)
{
	struct kvr_prefix_query q[BURST];
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++)
		if (job[i]->pair != NULL)
			q[k++] = (struct kvr_prefix_query){job[i]->hashes, job[i]->n_hashes,
							   job[i]->pair->overlap};
	kvr_prefix_score_burst(p->prefill->prefix, q, k);
}

void jobs_flush(struct lcore *lc)
{
	struct kvr_prefix_query q[BURST];

	for (uint32_t i = 0, n; i < lc->n_jobs; i += n) {
		struct pool *p = lc->job[i]->pool;

		/* Consecutive jobs of one pool; with one pool the whole batch. */
		for (n = 0; i + n < lc->n_jobs && n < BURST && lc->job[i + n]->pool == p; n++) {
			const struct job *j = lc->job[i + n];

			q[n] = (struct kvr_prefix_query){j->hashes, j->n_hashes, j->overlap};
		}
		kvr_prefix_score_burst(p->prefix, q, n);
		if (p->prefill != NULL)
			score_prefill(p, &lc->job[i], n);
	}
	for (uint32_t i = 0; i < lc->n_jobs; i++) {
		lc->job[i]->view = lc->view->number;
		kvr_overlap_pad(lc->job[i]->overlap);
		if (lc->job[i]->pair != NULL)
			kvr_overlap_pad(lc->job[i]->pair->overlap);
		job_put(lc, lc->job[i]);
	}
	lc->n_jobs = 0;
}
