/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending. A frame leaves through the lcore's own queue of the path's port, or through the egress
 * ring of the ingress lcore that sends for it. Frames larger than the path allows are fragmented;
 * this is possible for any frame, because every frame names its part of the message.
 */
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_reason.h"

#define FRAME_HDR ((uint32_t)sizeof(struct kvr_wire_hdr))

uint32_t out_limit(const struct lcore *lc, const struct kvr_path *to)
{
	const struct kvr_local *l = kvr_port_local(lc->rt->port[to->port]);
	uint32_t limit = to->family == 4 ? l->max_frame4 : l->max_frame6;

	if (to->max_frame != 0 && to->max_frame < limit)
		limit = to->max_frame;
	return limit;
}

void out_send_fitting(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to)
{
	struct kvr_port_queue *q = lc->queue[to->port];
	struct egress_msg e;

	if (likely(q != NULL)) {
		kvr_port_send(q, to, m); /* the port counts drops */
		return;
	}
	e = (struct egress_msg){m, *to};
	if (unlikely(KVR_SIM_FAULT(EGRESS) || rte_ring_enqueue_elem(lc->out, &e, sizeof(e)) != 0)) {
		in_count(lc, IN_EGRESS_FULL);
		rte_pktmbuf_free(m);
	}
}

/* Send the message of header @p h and body @p s in frames of at most @p limit bytes. */
static void send_cut(struct lcore *lc, const struct kvr_wire_hdr *h, const struct kvr_slice *s,
		     uint32_t n, const struct kvr_path *to, uint32_t limit)
{
	const struct kvr_wire_ids ids = {h->source, h->id, h->handle, h->epoch, h->msg_seq};
	struct kvr_frag frag;
	uint8_t hdr[sizeof(*h)];
	uint32_t off, len;

	if (kvr_frag_init(&frag, h->kind, &ids, h->msg_len, limit) < 0) {
		in_count(lc, IN_UNSENDABLE);
		return;
	}
	while (kvr_frag_next(&frag, hdr, &off, &len)) {
		struct rte_mbuf *m = KVR_SIM_FAULT(MBUF) ? NULL : rte_pktmbuf_alloc(lc->mbufs);
		uint8_t *p = NULL;

		if (m != NULL)
			p = (void *)rte_pktmbuf_append(m, (uint16_t)(FRAME_HDR + len));
		if (p == NULL) {
			in_count(
				lc,
				IN_NO_MBUF); /* the message stays incomplete and is retransmitted */
			rte_pktmbuf_free(m);
			return;
		}
		memcpy(p, hdr, FRAME_HDR);
		kvr_slices_copy(s, n, off, len, p + FRAME_HDR);
		out_send_fitting(lc, m, to);
	}
}

void out_slices(struct lcore *lc, const struct kvr_wire_hdr *hdr, const struct kvr_slice *s,
		uint32_t n, const struct kvr_path *to)
{
	send_cut(lc, hdr, s, n, to, out_limit(lc, to));
}

void out_send(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const uint32_t limit = out_limit(lc, to);

	if (likely(m->pkt_len <= limit)) {
		out_send_fitting(lc, m, to);
		return;
	}
	/* A single fragment cannot be cut again: all fragments of a message have the same length.
	 */
	if (kvr_frame_whole(hdr)) {
		in_count(lc, IN_REFRAGMENTED);
		send_cut(lc, hdr, &(struct kvr_slice){kvr_frame_body(hdr), hdr->frag_len}, 1, to,
			 limit);
	} else {
		in_count(lc, IN_UNSENDABLE);
	}
	rte_pktmbuf_free(m);
}

struct kvr_wire_hdr *out_frame_new(struct lcore *lc, struct rte_mbuf **m, size_t len)
{
	struct kvr_wire_hdr *hdr = NULL;

	*m = KVR_SIM_FAULT(MBUF) ? NULL : rte_pktmbuf_alloc(lc->mbufs);
	if (likely(*m != NULL))
		hdr = (void *)rte_pktmbuf_append(*m, (uint16_t)(FRAME_HDR + len));
	if (unlikely(hdr == NULL)) {
		in_count(lc, IN_NO_MBUF);
		rte_pktmbuf_free(*m);
	}
	return hdr;
}

/* A message of the router that is too long for one frame of the path. It is cut before it becomes a
 * frame, because the sender may be control, which must not free buffers (see ctl_mbufs). */
static void cut_message(struct lcore *lc, const struct kvr_wire_hdr *hdr, const struct kvr_slice *s,
			uint32_t n, const struct kvr_path *to)
{
	in_count(lc, IN_REFRAGMENTED);
	send_cut(lc, hdr, s, n, to, out_limit(lc, to));
}

void out_message(struct lcore *lc, const struct kvr_path *to, uint8_t kind, uint64_t source,
		 uint64_t id, uint64_t handle, const void *body, size_t len)
{
	const struct kvr_wire_ids ids = {source, id, handle, lc->rt->epoch, 0};
	const size_t padded = RTE_ALIGN_CEIL(len, 8u);
	struct kvr_wire_hdr *h, hdr;
	struct rte_mbuf *m;

	if (unlikely(FRAME_HDR + padded > out_limit(lc, to))) {
		static const uint8_t zero[8];
		const struct kvr_slice s[] = {{body, (uint32_t)len},
					      {zero, (uint32_t)(padded - len)}};

		kvr_hdr_put(&hdr, kind, &ids, (uint32_t)padded, 0, (uint16_t)padded);
		cut_message(lc, &hdr, s, RTE_DIM(s), to);
		return;
	}
	h = out_frame_new(lc, &m, padded);
	if (unlikely(h == NULL))
		return;
	kvr_hdr_put(h, kind, &ids, (uint32_t)padded, 0, (uint16_t)padded);
	if (len != 0)
		memcpy(h + 1, body, len);
	memset((uint8_t *)(h + 1) + len, 0, padded - len);
	out_send_fitting(lc, m, to);
}

void out_frame(struct lcore *lc, const struct kvr_path *to, const void *frame, size_t len)
{
	const struct kvr_slice body = {(const uint8_t *)frame + FRAME_HDR,
				       (uint32_t)(len - FRAME_HDR)};
	struct kvr_wire_hdr *hdr;
	struct rte_mbuf *m;

	if (unlikely(len > out_limit(lc, to))) {
		cut_message(lc, frame, &body, 1, to);
		return;
	}
	hdr = out_frame_new(lc, &m, len - FRAME_HDR);
	if (unlikely(hdr == NULL))
		return;
	memcpy(hdr, frame, len);
	out_send_fitting(lc, m, to);
}

/* Length of a REJECTED with @p text bytes of text in an answer of at most @p room bytes: complete,
 * without text, without details, or 0. */
static size_t reject_len(struct kvr_wire_rejected *r, size_t text, uint32_t room)
{
	const size_t whole = FRAME_HDR + sizeof(*r) + RTE_ALIGN_CEIL(text, 8u);

	if (room == 0 || whole <= room)
		return sizeof(*r) + text;
	r->text_len = 0;
	if (FRAME_HDR + sizeof(*r) <= room)
		return sizeof(*r);
	return FRAME_HDR + KVR_WIRE_REJECTED_LEAST <= room ? KVR_WIRE_REJECTED_LEAST : 0;
}

/* Default words for a rejection, with the numbers of its details. */
static void default_words(struct kvr_reason *t, const struct rejection *why)
{
	const uint64_t *d = why->detail;

	if (why->code == KVR_E_PROMPT_TOO_LONG && d[2] != 0) {
		kvr_reason_count(t, "the prompt has ", d[0]);
		kvr_reason_count(t, " blocks of ", d[2]);
		kvr_reason_count(t, " tokens, the limit of the pool is ", d[1]);
		return;
	}
	kvr_reason_say(t, kvr_code_text(why->code));
	if (why->code == KVR_E_TOO_LARGE && d[1] != 0) {
		kvr_reason_count(t, ": ", d[0]);
		kvr_reason_count(t, " bytes, at most ", d[1]);
	} else if (why->code == KVR_E_RATE_LIMITED && d[1] != 0) {
		kvr_reason_count(t, ": ", d[1]);
	} else if (why->code == KVR_E_STALE_EPOCH && d[0] != 0) {
		kvr_reason_count(t, "; the current epoch is ", d[0]);
	}
}

void out_reject(struct lcore *lc, const struct kvr_path *to, uint8_t kind, uint64_t source,
		uint64_t id, const struct rejection *why)
{
	uint8_t buf[sizeof(struct kvr_wire_rejected) + KVR_REASON_MAX + 1] = {0};
	struct kvr_wire_rejected *r = (void *)buf;
	struct kvr_reason text = kvr_reason_init((char *)(r + 1), KVR_REASON_MAX + 1);
	size_t len;

	if (why->text != NULL)
		kvr_reason_say(&text, why->text);
	else
		default_words(&text, why);
	len = text.n;

	kvr_stats_inc(lc->reject, why->code);
	r->code = (uint16_t)why->code;
	r->retryable = why->retry == RETRY_BY_CODE ? kvr_code_retryable(why->code)
						   : why->retry == RETRY_YES;
	r->kind = kind;
	r->text_len = (uint16_t)len;
	r->policy_class = why->policy_class;
	memcpy(r->detail, why->detail, sizeof(r->detail));
	len = reject_len(r, len, why->room);
	if (likely(len != 0))
		out_message(lc, to, KVR_REJECTED, source, id, why->handle, r, len);
	else
		in_count(lc, IN_REJECTION_SUPPRESSED);
}

void out_reject_frame(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		      const struct rejection *why)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	struct rejection w = *why;

	if (kvr_frame_answerable(hdr)) {
		w.handle = hdr->handle;
		w.room = out_answer_limit(lc->rt, from, m->pkt_len);
		out_reject(lc, from, hdr->kind, hdr->source, hdr->id, &w);
	} else {
		kvr_stats_inc(lc->reject, why->code);
	}
	rte_pktmbuf_free(m);
}

void out_dispatch_fields(const struct lcore *lc, const struct job *job,
			 const struct dispatch_fields *f, struct kvr_wire_hdr *hdr,
			 struct kvr_wire_request *q)
{
	hdr->kind = KVR_DISPATCH;
	hdr->handle = f->handle;
	hdr->epoch = lc->rt->epoch;
	if (!f->internal && !rules_of_port(lc->rt, job->client.port)->cookie)
		q->flags |= KVR_REQ_F_UNPROVEN;
	q->worker = f->worker;
	q->dp_rank = f->dp_rank;
	q->overlap_blocks = f->overlap_blocks;
	q->cached_tokens = f->cached_tokens;
	q->attempt = f->attempt;
	if (f->trial)
		q->flags |= KVR_REQ_F_TRIAL;
	if (!f->direct)
		q->flags &= ~KVR_REQ_F_DIRECT;
	memcpy(q->client_ip, job->client.ip, sizeof(q->client_ip));
	q->client_port = job->client.udp_port;
	/* Largest frame of the agent, which is relayed unchanged or ends here. */
	q->client_frame = (uint16_t)(f->internal ? lc->rt->max_frame : out_limit(lc, &job->client));
	/* Space for the hint that the router adds to the last item. */
	if (!f->internal && unlikely((q->flags & KVR_REQ_F_TRACK) != 0) &&
	    q->client_frame >= KVR_WIRE_LEAST_MAX_FRAME + KVR_WIRE_TRACKER_ROOM)
		q->client_frame = (uint16_t)(q->client_frame - KVR_WIRE_TRACKER_ROOM);
}

void out_dispatch(struct lcore *lc, struct job *job, const struct kvr_path *to,
		  const struct dispatch_fields *f)
{
	struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(job->frame, struct kvr_wire_hdr *);

	out_dispatch_fields(lc, job, f, hdr, (void *)(hdr + 1));
	out_send(lc, job->frame, to);
	job->frame = NULL;
}

static uint32_t put_egress(struct lcore *lc, struct rte_ring *r)
{
	struct egress_msg e[BURST];
	uint32_t n;

	if (likely(rte_ring_empty(r)))
		return 0;
	n = rte_ring_dequeue_burst_elem(r, e, sizeof(e[0]), BURST, NULL);

	for (uint32_t i = 0; i < n; i++)
		kvr_port_send(lc->queue[e[i].path.port], &e[i].path, e[i].m);
	return n;
}

uint32_t out_egress(struct lcore *lc)
{
	return put_egress(lc, lc->egress) +
	       (lc->egress_ctl != NULL ? put_egress(lc, lc->egress_ctl) : 0);
}

/* The first bytes of the headroom: headers are written right before the data and take at most 70
 * bytes. */
_Static_assert(RTE_PKTMBUF_HEADROOM >= sizeof(struct kvr_path) + KVR_PATH_MAX_HEADERS,
	       "path and headers share the headroom");

void path_keep(struct rte_mbuf *m, const struct kvr_path *path)
{
	memcpy(m->buf_addr, path, sizeof(*path));
}

const struct kvr_path *path_kept(const struct rte_mbuf *m)
{
	return m->buf_addr;
}

uint32_t out_answer_limit(const struct router *rt, const struct kvr_path *from, uint32_t question)
{
	return rules_of_port(rt, from->port)->cookie ? question : 0;
}
