/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers: items are numbered, split to frames, sent within a window, and retransmitted until
 * acknowledged. On the direct path they go to the client, and PROGRESS reports to the router.
 */
#include "agent_pvt.h"
#include "kvr_reason.h"
#include "kvr_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#define BADLY	      (KVR_AGENT_FAILED | KVR_AGENT_REFUSED)
#define RESPOND_FLAGS (KVR_AGENT_LAST | KVR_AGENT_ERROR | KVR_AGENT_TOKENS | BADLY)
#define WORDS	      (KVR_RESP_F_ERROR | KVR_RESP_F_CANCELLED) /* items whose data are text */

/* Send an item that fits one frame. */
static void send_item(struct kvr_agent *agent, struct agent_req *req, const struct agent_item *it)
{
	uint8_t *f = kvr_link_frame(&agent->link);

	kvr_hdr_put(f, KVR_RESPONSE, &it->ids, it->len, 0, (uint16_t)it->len);
	memcpy(f + KVR_WIRE_MIN_FRAME, &it->w, it->len);
	kvr_link_queue(&agent->link, req->direct ? &req->client : &agent->router,
		       (int)(KVR_WIRE_MIN_FRAME + it->len));
}

/* Add tracking data to the last item, if the client requested them. */
static void put_track(const struct agent_req *req, const struct kvr_agent_item *item,
		      struct kvr_hint_buf *b)
{
	if (!req->track)
		return;
	if (item->prompt_details_len > 0)
		kvr_hint_put(b, KVR_HINT_PROMPT_DETAILS, item->prompt_details,
			     item->prompt_details_len, NULL, 0);
	if (item->trace_link_len > 0)
		kvr_hint_put(b, KVR_HINT_TRACE_LINK, item->trace_link, item->trace_link_len, NULL,
			     0);
	if (b->len == 0 && req->echo_len > 0) {
		memcpy(b->p, req->echo, req->echo_len);
		b->len = req->echo_len;
	}
}

/* Add hints of the last item: tracking data and, after a failure, the rank, which the client may
 * not know. */
static void put_last_hints(const struct kvr_agent *agent, const struct agent_req *req,
			   const struct kvr_agent_item *item, uint16_t wire_flags,
			   struct kvr_hint_buf *b)
{
	put_track(req, item, b);
	if ((wire_flags & BADLY) != 0 && req->rank != NULL)
		kvr_hint_put_ranks(b, KVR_HINT_RANK, &agent->conf.worker, &req->rank->dp_rank, 1);
}

static void repeat_start(struct kvr_agent *agent, struct agent_req *req)
{
	req->backoff_us = AGENT_REPEAT_US;
	kvr_timer_set(&agent->link.timers, &req->repeat, agent->link.now_us + req->backoff_us);
}

/* Return true if another item may be in flight. An item larger than the window is sent alone. */
static bool admits_item(const struct agent_req *req, const struct agent_item *it)
{
	const uint32_t items = req->unproven ? KVR_WIRE_UNPROVEN_ITEMS : AGENT_WINDOW_ITEMS;
	const uint32_t frames = req->unproven ? KVR_WIRE_UNPROVEN_ITEMS : AGENT_WINDOW_FRAMES;

	return it->w.seq - req->acked < items &&
	       (req->flying == 0 || req->flying + it->n_frames <= frames);
}

void kvr_agent__send_new(struct kvr_agent *agent, struct agent_req *req)
{
	struct agent_item *it;

	STAILQ_FOREACH (it, &req->items, link) {
		if (it->w.seq < req->sent)
			continue;
		if (!admits_item(req, it))
			break;
		if (req->ack_waits) {
			req->ack_waits = false;
			kvr_timer_stop(&agent->link.timers, &req->repeat);
		}
		req->flying += it->n_frames;
		req->sent = it->w.seq + 1;
		if (it->n_frames > 1) {
			req->parts++;
			continue;
		}
		if (req->parts > 0 && !req->pacing)
			kvr_agent__send_parts(agent, req); /* keeps the order if possible */
		send_item(agent, req, it);
	}
	if (req->sent > req->acked && !kvr_timer_running(&req->repeat)) {
		req->progress_us = agent->link.now_us;
		repeat_start(agent, req);
	}
	if (req->parts > 0 && !req->pacing)
		kvr_agent__send_parts(agent, req);
}

static void send_progress(struct kvr_agent *agent, struct agent_req *req)
{
	kvr_link_send(&agent->link, &agent->router, KVR_PROGRESS, req->prog_ids, &req->prog,
		      sizeof(req->prog));
}

/* Direct path: report the first token, new blocks and the end to the router. */
static void report_progress(struct kvr_agent *agent, struct agent_req *req, uint16_t wire_flags,
			    uint16_t status)
{
	const uint32_t blocks = agent_blocks(agent, (uint64_t)req->isl + req->generated);
	const bool first = req->generated > 0 && !req->prog_first;
	const bool fin = (wire_flags & KVR_RESP_F_FIN) != 0;
	uint16_t flags = req->prog_first || first ? KVR_PROG_F_FIRST : 0;

	if (!req->direct || req->adrift || (!first && !fin && blocks == req->prog_blocks))
		return;
	if (fin) {
		flags |= KVR_PROG_F_FIN;
		flags |= (wire_flags & KVR_RESP_F_ERROR) ? KVR_PROG_F_ERROR : 0;
		flags |= (wire_flags & KVR_RESP_F_CANCELLED) ? KVR_PROG_F_CANCELLED : 0;
		flags |= (wire_flags & KVR_RESP_F_FAILED) ? KVR_PROG_F_FAILED : 0;
		flags |= (wire_flags & KVR_RESP_F_REFUSED) ? KVR_PROG_F_REFUSED : 0;
	}
	req->prog_first = req->prog_first || first;
	req->prog_fin = fin;
	req->prog = (struct kvr_wire_progress){
		.seq = req->prog_ids.msg_seq == 0 ? 0 : req->prog.seq + 1,
		.flags = flags,
		.status = status,
		.generated_tokens = req->generated,
		.cached_tokens = req->cached_tokens};
	req->prog_blocks = blocks;
	req->prog_ids = kvr_link_ids(&agent->link, req->source, req->id, req->handle);
	send_progress(agent, req);
	if (fin && !kvr_timer_running(&req->repeat))
		kvr_timer_set(&agent->link.timers, &req->repeat,
			      agent->link.now_us + req->backoff_us);
}

/* Create an item; hints follow when the data are known. */
static struct agent_item *new_item(struct kvr_agent *agent, const struct agent_req *req,
				   const void *data, uint32_t len, uint32_t hints)
{
	const uint32_t padded = RTE_ALIGN_CEIL(len, 8u), unit = kvr_agent__unit(req);
	const uint32_t body = (uint32_t)sizeof(struct kvr_wire_response) + padded + hints;
	const uint32_t frames = (body + unit - 1) / unit;
	const uint32_t words = frames > 1 ? (frames + 63) / 64 : 0;
	struct agent_item *it =
		malloc(offsetof(struct agent_item, w) + body + words * sizeof(uint64_t));

	if (it == NULL)
		return NULL;
	*it = (struct agent_item){
		.ids = kvr_link_ids(&agent->link, req->source, req->id, req->handle),
		.len = body,
		.n_frames = frames,
		.w = {.generated_tokens = req->generated,
		      .data_len = len,
		      .cached_tokens = req->cached_tokens,
		      .hints_len = hints}};
	if (words > 0)
		it->again = (void *)((uint8_t *)&it->w + body);
	if (len > 0)
		memcpy(it->data, data, len);
	memset(it->data + len, 0, padded - len);
	return it;
}

/* Maximum data per item. On a prefill leg only the result may have several frames. */
static uint32_t max_item_bytes(const struct agent_req *req, uint16_t wire_flags)
{
	if (req->leg != KVR_ROLE_PREFILL)
		return KVR_WIRE_MAX_ITEM;
	return (wire_flags & KVR_RESP_F_FIN) != 0 ? KVR_WIRE_MAX_RESULT : req->item_bytes;
}

/* Return true if hints, including those that the router adds, need a separate last item, because
 * the router can only extend an item of one frame. Texts and transfer results are not split. */
static bool needs_another(const struct agent_req *req, uint32_t len, uint32_t hints,
			  uint16_t wire_flags)
{
	return (req->track || hints > 0) && (wire_flags & KVR_RESP_F_FIN) != 0 &&
	       (wire_flags & WORDS) == 0 && req->leg != KVR_ROLE_PREFILL &&
	       RTE_ALIGN_CEIL(len, 8u) + hints > req->item_bytes;
}

struct item_list {
	STAILQ_HEAD(, agent_item) head;
	uint32_t n;
};

static struct agent_item *add_item(struct kvr_agent *agent, const struct agent_req *req,
				   struct item_list *l, const void *data, uint32_t len,
				   uint32_t hints)
{
	struct agent_item *it = new_item(agent, req, data, len, hints);

	if (it == NULL)
		return NULL;
	it->w.seq = req->next_seq + l->n++;
	STAILQ_INSERT_TAIL(&l->head, it, link);
	return it;
}

/* Split the data into items; adds all of them or none. */
static int split_into_items(struct kvr_agent *agent, struct agent_req *req,
			    const struct kvr_agent_item *item, uint16_t wire_flags)
{
	struct item_list list = {STAILQ_HEAD_INITIALIZER(list.head), 0};
	uint8_t hints[KVR_WIRE_SAID_MOST];
	struct kvr_hint_buf said = {.p = hints, .cap = sizeof(hints)};
	struct agent_item *it = NULL;
	uint32_t off = 0, len;
	bool more, another;

	if ((wire_flags & KVR_RESP_F_FIN) != 0)
		put_last_hints(agent, req, item, wire_flags, &said);
	if (said.len > req->item_bytes)
		said.len = 0; /* does not fit in any item */
	do {
		len = RTE_MIN(item->len - off, max_item_bytes(req, wire_flags));
		more = off + len < item->len;
		another = !more && needs_another(req, len, said.len, wire_flags);
		if ((wire_flags & WORDS) != 0 &&
		    RTE_ALIGN_CEIL(len, 8u) + said.len > req->item_bytes)
			said.len = 0; /* texts are not split */
		/* NULL is allowed without data, but has no offset. */
		it = add_item(agent, req, &list,
			      off == 0 ? item->data : (const uint8_t *)item->data + off, len,
			      more || another ? 0 : said.len);
		if (it == NULL)
			goto err_list;
		it->w.flags = wire_flags & KVR_RESP_F_TOKENS;
		off += len;
	} while (off < item->len);
	if (another) {
		it = add_item(agent, req, &list, NULL, 0, said.len);
		if (it == NULL)
			goto err_list;
	}
	memcpy(it->data + RTE_ALIGN_CEIL(it->w.data_len, 8u), said.p, it->w.hints_len);
	/* The last piece has the flags and counts of the whole. */
	it->w.flags = wire_flags;
	it->w.status = item->status;
	it->w.generated_tokens = RTE_MAX(req->generated, item->generated_tokens);
	if (item->cached_known)
		it->w.cached_tokens = item->cached_tokens;
	STAILQ_CONCAT(&req->items, &list.head);
	req->next_seq += list.n;
	req->bytes += item->len;
	agent->stats.items += list.n;
	return 0;

err_list:
	while ((it = STAILQ_FIRST(&list.head)) != NULL) {
		STAILQ_REMOVE_HEAD(&list.head, link);
		free(it);
	}
	return -ENOMEM;
}

int kvr_agent__put_item(struct kvr_agent *agent, struct agent_req *req,
			const struct kvr_agent_item *item, uint16_t wire_flags)
{
	const int rc = split_into_items(agent, req, item, wire_flags);

	if (rc < 0)
		return rc;
	req->generated = RTE_MAX(req->generated, item->generated_tokens);
	if (item->cached_known)
		req->cached_tokens = item->cached_tokens;
	if (wire_flags & KVR_RESP_F_FIN)
		req->state = AGENT_ENDING;
	kvr_agent__send_new(agent, req);
	report_progress(agent, req, wire_flags, item->status);
	return 0;
}

int kvr_agent_respond(struct kvr_agent *agent, uint64_t handle, const struct kvr_agent_item *item)
{
	struct agent_req *req = kvr_agent__find_request(agent, handle);

	if (req == NULL || req->state != AGENT_RUNNING || req->aborted)
		return -ENOENT;
	if ((item->flags & ~RESPOND_FLAGS) != 0 || (item->len > 0 && item->data == NULL) ||
	    (item->flags & BADLY) == BADLY ||
	    ((item->flags & BADLY) != 0 && (item->flags & KVR_AGENT_LAST) == 0) ||
	    ((item->flags & KVR_AGENT_ERROR) &&
	     (item->flags & (KVR_AGENT_LAST | KVR_AGENT_TOKENS)) != KVR_AGENT_LAST) ||
	    ((item->flags & KVR_AGENT_TOKENS) && item->len % 4 != 0))
		return -EINVAL;
	if (item->prompt_details_len > KVR_HINT_MAX_DETAILS ||
	    item->trace_link_len > KVR_HINT_MAX_TRACE)
		return -EMSGSIZE;
	if (item->len > ((item->flags & KVR_AGENT_ERROR) != 0 ? KVR_REASON_MAX : AGENT_MAX_ITEM))
		return -EMSGSIZE;
	if (req->leg == KVR_ROLE_PREFILL &&
	    (item->flags & (KVR_AGENT_LAST | KVR_AGENT_ERROR)) == KVR_AGENT_LAST) {
		if (item->len == 0 && !req->bootstrap)
			return -EINVAL;
	}
	if (req->bytes > 0 && req->bytes + item->len > agent->conf.request_bytes)
		return -ENOBUFS;
	kvr_link_tick(&agent->link);
	return kvr_agent__put_item(agent, req, item, (uint16_t)item->flags);
}

int kvr_agent_refuse(struct kvr_agent *agent, uint64_t handle, uint16_t code, const char *words)
{
	const struct agent_req *req = kvr_agent__find_request(agent, handle);

	if (req == NULL || req->state != AGENT_RUNNING || req->aborted)
		return -ENOENT;
	if (code == 0)
		return -EINVAL;
	if (req->next_seq > 0)
		return -EBUSY;
	return kvr_agent_respond(agent, handle,
				 &(struct kvr_agent_item){.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR,
							  .status = code,
							  .data = words,
							  .len = (uint32_t)strlen(words)});
}

int kvr_agent__end_request(struct kvr_agent *agent, struct agent_req *req, uint16_t how,
			   const char *words, uint64_t n)
{
	char text[KVR_REASON_MAX + 1];
	struct kvr_reason t = kvr_reason_init(text, sizeof(text));
	struct kvr_agent_item item = {.data = text};

	if (n != 0)
		kvr_reason_count(&t, words, n);
	else
		kvr_reason_say(&t, words);
	item.len = t.n;
	return kvr_agent__put_item(agent, req, &item, KVR_RESP_F_FIN | how);
}

void kvr_agent__end_undeliverable(struct kvr_agent *agent, struct agent_req *req, uint64_t seq)
{
	struct agent_item *it, *next;

	if (seq < req->acked || seq >= req->sent)
		return; /* not sent yet, or replaced already */
	kvr_agent__report_abort(agent, req, KVR_AGENT_ABORT_ROUTER, KVR_E_TOO_LARGE);
	for (it = STAILQ_FIRST(&req->items); it != NULL; it = next) {
		next = STAILQ_NEXT(it, link);
		if (it->w.seq < seq)
			continue;
		STAILQ_REMOVE(&req->items, it, agent_item, link);
		req->bytes -= it->w.data_len;
		req->flying -= it->w.seq < req->sent ? it->n_frames : 0;
		free(it);
	}
	req->next_seq = req->sent = (uint32_t)seq;
	if (kvr_agent__end_request(agent, req, KVR_RESP_F_ERROR,
				   "an item does not fit the client's frames", 0) < 0)
		kvr_agent__close_slot(agent, req, false); /* no memory */
}

/* A receiver that requests fragments again and again restarts the timer, but makes no progress. */
static bool is_overdue(const struct kvr_agent *agent, const struct agent_req *req)
{
	return agent->link.now_us - req->progress_us >= AGENT_GIVE_UP_US;
}

/* Give up a request whose items are not acknowledged. */
static void give_up(struct kvr_agent *agent, struct agent_req *req)
{
	KVR_SIM_SOMETIMES(AGENT_GIVES_UP);
	agent->stats.abandoned++;
	kvr_agent__report_abort(agent, req, KVR_AGENT_ABORT_SILENCE, 0);
	if (req->state == AGENT_RUNNING || (!req->direct && req->sent < req->next_seq)) {
		/* The client is gone, but the router must release the booking. The last item may be
		 * unsent because the window is full. */
		kvr_agent__drop_items(req);
		req->acked = req->sent = req->next_seq;
		if (kvr_agent__end_request(
			    agent, req, KVR_RESP_F_ERROR,
			    "its items were not acknowledged, s: ", KVR_WIRE_ITEMS_KEPT_S) == 0)
			return; /* retransmitted for the same time again */
	}
	kvr_agent__close_slot(agent, req, false);
}

void kvr_agent__retransmit(struct kvr_agent *agent, struct agent_req *req)
{
	struct agent_item *it;

	if (req->ack_waits) {
		const struct kvr_wire_hdr h = {
			.source = req->source, .id = req->id, .handle = req->handle};

		req->ack_waits = false;
		kvr_agent__send_ack(agent, &h, 0);
		return;
	}
	if (is_overdue(agent, req)) {
		give_up(agent, req);
		return;
	}
	if (req->pacing) {
		if (!kvr_agent__send_parts(agent, req))
			repeat_start(agent, req); /* all fragments were sent */
		return;
	}
	STAILQ_FOREACH (it, &req->items, link) {
		if (it->w.seq >= req->sent)
			break;
		KVR_SIM_SOMETIMES(AGENT_ITEM_AGAIN);
		agent->stats.items_resent++;
		if (it->n_frames == 1)
			send_item(agent, req, it);
		else
			kvr_agent__send_first(agent, req, it);
	}
	if (req->prog_fin && !req->prog_done)
		send_progress(agent, req);
	req->backoff_us = RTE_MIN(2 * req->backoff_us, AGENT_REPEAT_MAX_US);
	kvr_timer_set(&agent->link.timers, &req->repeat, agent->link.now_us + req->backoff_us);
	if (req->parts > 0)
		kvr_agent__send_parts(agent, req);
}

void kvr_agent__on_response_ack(struct kvr_agent *agent, const struct kvr_udp_addr *from,
				const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_response_ack *w = (const void *)body;
	struct agent_req *req = kvr_agent__find_request(agent, h->handle);
	struct agent_item *it;

	if (req == NULL || req->source != h->source || req->id != h->id ||
	    (!req->direct && !kvr_udp_addr_equal(from, &agent->router)) ||
	    w->next_seq > req->sent) {
		agent->stats.frames_foreign += req == NULL || req->state != AGENT_OVER;
		return;
	}
	if (req->state == AGENT_OVER || w->next_seq <= req->acked)
		return;
	while ((it = STAILQ_FIRST(&req->items)) != NULL && it->w.seq < w->next_seq) {
		STAILQ_REMOVE_HEAD(&req->items, link);
		req->bytes -= it->w.data_len;
		req->flying -= it->n_frames;
		free(it);
	}
	req->acked = w->next_seq;
	req->unproven = false;
	kvr_timer_stop(&agent->link.timers, &req->repeat);
	req->pacing = false;
	req->progress_us = agent->link.now_us;
	req->backoff_us = AGENT_REPEAT_US;
	kvr_agent__send_new(agent, req);
	if (req->prog_fin && !req->prog_done && !kvr_timer_running(&req->repeat))
		kvr_timer_set(&agent->link.timers, &req->repeat,
			      agent->link.now_us + req->backoff_us);
	kvr_agent__finish_if_acked(agent, req);
}

void kvr_agent__on_missing(struct kvr_agent *agent, const struct kvr_udp_addr *from,
			   const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_missing *w = (const void *)body;
	struct agent_req *req = kvr_agent__find_request(agent, h->handle);

	if (req == NULL || w->kind != KVR_RESPONSE || req->source != h->source ||
	    req->id != h->id || (!req->direct && !kvr_udp_addr_equal(from, &agent->router))) {
		agent->stats.frames_foreign++;
		return;
	}
	if (req->state == AGENT_OVER || !kvr_agent__parts_named(agent, req, w))
		return;
	if (is_overdue(agent, req)) {
		give_up(agent, req);
		return;
	}
	if (!req->pacing)
		repeat_start(agent, req);
	kvr_agent__send_new(agent, req);
}

void kvr_agent__on_progress_ack(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
				const uint8_t *body)
{
	const struct kvr_wire_progress_ack *w = (const void *)body;
	struct agent_req *req = kvr_agent__find_request(agent, h->handle);

	if (req == NULL || !req->direct || !req->prog_fin || req->prog_done ||
	    w->next_seq <= req->prog.seq)
		return;
	req->prog_done = true;
	kvr_agent__finish_if_acked(agent, req);
}
