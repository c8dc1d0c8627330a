/* SPDX-License-Identifier: BSD-3-Clause */
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
static void send_item(struct kvr_agent *a, struct agent_req *r, const struct agent_item *it)
{
	uint8_t *f = kvr_link_frame(&a->link);

	kvr_hdr_put(f, KVR_RESPONSE, &it->ids, it->len, 0, (uint16_t)it->len);
	memcpy(f + KVR_WIRE_MIN_FRAME, &it->w, it->len);
	kvr_link_queue(&a->link, r->direct ? &r->client : &a->router,
		       (int)(KVR_WIRE_MIN_FRAME + it->len));
}

/* Add tracking data to the last item, if the client requested them. */
static void put_track(const struct agent_req *r, const struct kvr_agent_item *item,
		      struct kvr_hint_buf *b)
{
	if (!r->track)
		return;
	if (item->prompt_details_len > 0)
		kvr_hint_put(b, KVR_HINT_PROMPT_DETAILS, item->prompt_details,
			     item->prompt_details_len, NULL, 0);
	if (item->trace_link_len > 0)
		kvr_hint_put(b, KVR_HINT_TRACE_LINK, item->trace_link, item->trace_link_len, NULL,
			     0);
	if (b->len == 0 && r->echo_len > 0) {
		memcpy(b->p, r->echo, r->echo_len);
		b->len = r->echo_len;
	}
}

/* Add hints of the last item: tracking data and, after a failure, the rank, which the client may
 * not know. */
static void put_last_hints(const struct kvr_agent *a, const struct agent_req *r,
			   const struct kvr_agent_item *item, uint16_t wire_flags,
			   struct kvr_hint_buf *b)
{
	put_track(r, item, b);
	if ((wire_flags & BADLY) != 0 && r->rank != NULL)
		kvr_hint_put_ranks(b, KVR_HINT_RANK, &a->conf.worker, &r->rank->dp_rank, 1);
}

static void repeat_start(struct kvr_agent *a, struct agent_req *r)
{
	r->backoff_us = AGENT_REPEAT_US;
	kvr_timer_set(&a->link.timers, &r->repeat, a->link.now_us + r->backoff_us);
}

/* Return true if another item may be in flight. An item larger than the window is sent alone. */
static bool admits_item(const struct agent_req *r, const struct agent_item *it)
{
	const uint32_t items = r->unproven ? KVR_WIRE_UNPROVEN_ITEMS : AGENT_WINDOW_ITEMS;
	const uint32_t frames = r->unproven ? KVR_WIRE_UNPROVEN_ITEMS : AGENT_WINDOW_FRAMES;

	return it->w.seq - r->acked < items &&
	       (r->flying == 0 || r->flying + it->n_frames <= frames);
}

void kvr_agent__send_new(struct kvr_agent *a, struct agent_req *r)
{
	struct agent_item *it;

	STAILQ_FOREACH (it, &r->items, link) {
		if (it->w.seq < r->sent)
			continue;
		if (!admits_item(r, it))
			break;
		if (r->ack_waits) {
			r->ack_waits = false;
			kvr_timer_stop(&a->link.timers, &r->repeat);
		}
		r->flying += it->n_frames;
		r->sent = it->w.seq + 1;
		if (it->n_frames > 1) {
			r->parts++;
			continue;
		}
		if (r->parts > 0 && !r->pacing)
			kvr_agent__send_parts(a, r); /* keeps the order if possible */
		send_item(a, r, it);
	}
	if (r->sent > r->acked && !kvr_timer_running(&r->repeat)) {
		r->progress_us = a->link.now_us;
		repeat_start(a, r);
	}
	if (r->parts > 0 && !r->pacing)
		kvr_agent__send_parts(a, r);
}

static void send_progress(struct kvr_agent *a, struct agent_req *r)
{
	kvr_link_send(&a->link, &a->router, KVR_PROGRESS, r->prog_ids, &r->prog, sizeof(r->prog));
}

/* Direct path: report the first token, new blocks and the end to the router. */
static void report_progress(struct kvr_agent *a, struct agent_req *r, uint16_t wire_flags,
			    uint16_t status)
{
	const uint32_t blocks = agent_blocks(a, (uint64_t)r->isl + r->generated);
	const bool first = r->generated > 0 && !r->prog_first;
	const bool fin = (wire_flags & KVR_RESP_F_FIN) != 0;
	uint16_t flags = r->prog_first || first ? KVR_PROG_F_FIRST : 0;

	if (!r->direct || r->adrift || (!first && !fin && blocks == r->prog_blocks))
		return;
	if (fin) {
		flags |= KVR_PROG_F_FIN;
		flags |= (wire_flags & KVR_RESP_F_ERROR) ? KVR_PROG_F_ERROR : 0;
		flags |= (wire_flags & KVR_RESP_F_CANCELLED) ? KVR_PROG_F_CANCELLED : 0;
		flags |= (wire_flags & KVR_RESP_F_FAILED) ? KVR_PROG_F_FAILED : 0;
		flags |= (wire_flags & KVR_RESP_F_REFUSED) ? KVR_PROG_F_REFUSED : 0;
	}
	r->prog_first = r->prog_first || first;
	r->prog_fin = fin;
	r->prog = (struct kvr_wire_progress){.seq = r->prog_ids.msg_seq == 0 ? 0 : r->prog.seq + 1,
					     .flags = flags,
					     .status = status,
					     .generated_tokens = r->generated,
					     .cached_tokens = r->cached_tokens};
	r->prog_blocks = blocks;
	r->prog_ids = kvr_link_ids(&a->link, r->source, r->id, r->handle);
	send_progress(a, r);
	if (fin && !kvr_timer_running(&r->repeat))
		kvr_timer_set(&a->link.timers, &r->repeat, a->link.now_us + r->backoff_us);
}

/* Create an item; hints follow when the data are known. */
static struct agent_item *new_item(struct kvr_agent *a, const struct agent_req *r, const void *data,
				   uint32_t len, uint32_t hints)
{
	const uint32_t padded = RTE_ALIGN_CEIL(len, 8u), unit = kvr_agent__unit(r);
	const uint32_t body = (uint32_t)sizeof(struct kvr_wire_response) + padded + hints;
	const uint32_t frames = (body + unit - 1) / unit;
	const uint32_t words = frames > 1 ? (frames + 63) / 64 : 0;
	struct agent_item *it =
		malloc(offsetof(struct agent_item, w) + body + words * sizeof(uint64_t));

	if (it == NULL)
		return NULL;
	*it = (struct agent_item){.ids = kvr_link_ids(&a->link, r->source, r->id, r->handle),
				  .len = body,
				  .n_frames = frames,
				  .w = {.generated_tokens = r->generated,
					.data_len = len,
					.cached_tokens = r->cached_tokens,
					.hints_len = hints}};
	if (words > 0)
		it->again = (void *)((uint8_t *)&it->w + body);
	if (len > 0)
		memcpy(it->data, data, len);
	memset(it->data + len, 0, padded - len);
	return it;
}

/* Maximum data per item. On a prefill leg only the result may have several frames. */
static uint32_t max_item_bytes(const struct agent_req *r, uint16_t wire_flags)
{
	if (r->leg != KVR_ROLE_PREFILL)
		return KVR_WIRE_MAX_ITEM;
	return (wire_flags & KVR_RESP_F_FIN) != 0 ? KVR_WIRE_MAX_RESULT : r->item_bytes;
}

/* Return true if hints, including those that the router adds, need a separate last item, because
 * the router can only extend an item of one frame. Texts and transfer results are not split. */
static bool needs_another(const struct agent_req *r, uint32_t len, uint32_t hints,
			  uint16_t wire_flags)
{
	return (r->track || hints > 0) && (wire_flags & KVR_RESP_F_FIN) != 0 &&
	       (wire_flags & WORDS) == 0 && r->leg != KVR_ROLE_PREFILL &&
	       RTE_ALIGN_CEIL(len, 8u) + hints > r->item_bytes;
}

struct item_list {
	STAILQ_HEAD(, agent_item) head;
	uint32_t n;
};

static struct agent_item *add_item(struct kvr_agent *a, const struct agent_req *r,
				   struct item_list *l, const void *data, uint32_t len,
				   uint32_t hints)
{
	struct agent_item *it = new_item(a, r, data, len, hints);

	if (it == NULL)
		return NULL;
	it->w.seq = r->next_seq + l->n++;
	STAILQ_INSERT_TAIL(&l->head, it, link);
	return it;
}

/* Split the data into items; adds all of them or none. */
static int split_into_items(struct kvr_agent *a, struct agent_req *r,
			    const struct kvr_agent_item *item, uint16_t wire_flags)
{
	struct item_list list = {STAILQ_HEAD_INITIALIZER(list.head), 0};
	uint8_t hints[KVR_WIRE_SAID_MOST];
	struct kvr_hint_buf said = {.p = hints, .cap = sizeof(hints)};
	struct agent_item *it = NULL;
	uint32_t off = 0, len;
	bool more, another;

	if ((wire_flags & KVR_RESP_F_FIN) != 0)
		put_last_hints(a, r, item, wire_flags, &said);
	if (said.len > r->item_bytes)
		said.len = 0; /* does not fit in any item */
	do {
		len = RTE_MIN(item->len - off, max_item_bytes(r, wire_flags));
		more = off + len < item->len;
		another = !more && needs_another(r, len, said.len, wire_flags);
		if ((wire_flags & WORDS) != 0 && RTE_ALIGN_CEIL(len, 8u) + said.len > r->item_bytes)
			said.len = 0; /* texts are not split */
		/* NULL is allowed without data, but has no offset. */
		it = add_item(a, r, &list,
			      off == 0 ? item->data : (const uint8_t *)item->data + off, len,
			      more || another ? 0 : said.len);
		if (it == NULL)
			goto err_list;
		it->w.flags = wire_flags & KVR_RESP_F_TOKENS;
		off += len;
	} while (off < item->len);
	if (another) {
		it = add_item(a, r, &list, NULL, 0, said.len);
		if (it == NULL)
			goto err_list;
	}
	memcpy(it->data + RTE_ALIGN_CEIL(it->w.data_len, 8u), said.p, it->w.hints_len);
	/* The last piece has the flags and counts of the whole. */
	it->w.flags = wire_flags;
	it->w.status = item->status;
	it->w.generated_tokens = RTE_MAX(r->generated, item->generated_tokens);
	if (item->cached_known)
		it->w.cached_tokens = item->cached_tokens;
	STAILQ_CONCAT(&r->items, &list.head);
	r->next_seq += list.n;
	r->bytes += item->len;
	a->stats.items += list.n;
	return 0;

err_list:
	while ((it = STAILQ_FIRST(&list.head)) != NULL) {
		STAILQ_REMOVE_HEAD(&list.head, link);
		free(it);
	}
	return -ENOMEM;
}

int kvr_agent__put_item(struct kvr_agent *a, struct agent_req *r, const struct kvr_agent_item *item,
			uint16_t wire_flags)
{
	const int rc = split_into_items(a, r, item, wire_flags);

	if (rc < 0)
		return rc;
	r->generated = RTE_MAX(r->generated, item->generated_tokens);
	if (item->cached_known)
		r->cached_tokens = item->cached_tokens;
	if (wire_flags & KVR_RESP_F_FIN)
		r->state = AGENT_ENDING;
	kvr_agent__send_new(a, r);
	report_progress(a, r, wire_flags, item->status);
	return 0;
}

int kvr_agent_respond(struct kvr_agent *a, uint64_t handle, const struct kvr_agent_item *item)
{
	struct agent_req *r = kvr_agent__find_request(a, handle);

	if (r == NULL || r->state != AGENT_RUNNING || r->aborted)
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
	if (r->leg == KVR_ROLE_PREFILL &&
	    (item->flags & (KVR_AGENT_LAST | KVR_AGENT_ERROR)) == KVR_AGENT_LAST) {
		if (item->len == 0 && !r->bootstrap)
			return -EINVAL;
	}
	if (r->bytes > 0 && r->bytes + item->len > a->conf.request_bytes)
		return -ENOBUFS;
	kvr_link_tick(&a->link);
	return kvr_agent__put_item(a, r, item, (uint16_t)item->flags);
}

int kvr_agent_refuse(struct kvr_agent *a, uint64_t handle, uint16_t code, const char *words)
{
	const struct agent_req *r = kvr_agent__find_request(a, handle);

	if (r == NULL || r->state != AGENT_RUNNING || r->aborted)
		return -ENOENT;
	if (code == 0)
		return -EINVAL;
	if (r->next_seq > 0)
		return -EBUSY;
	return kvr_agent_respond(a, handle,
				 &(struct kvr_agent_item){.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR,
							  .status = code,
							  .data = words,
							  .len = (uint32_t)strlen(words)});
}

int kvr_agent__end_request(struct kvr_agent *a, struct agent_req *r, uint16_t how,
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
	return kvr_agent__put_item(a, r, &item, KVR_RESP_F_FIN | how);
}

void kvr_agent__end_undeliverable(struct kvr_agent *a, struct agent_req *r, uint64_t seq)
{
	struct agent_item *it, *next;

	if (seq < r->acked || seq >= r->sent)
		return; /* not sent yet, or replaced already */
	kvr_agent__report_abort(a, r, KVR_AGENT_ABORT_ROUTER, KVR_E_TOO_LARGE);
	for (it = STAILQ_FIRST(&r->items); it != NULL; it = next) {
		next = STAILQ_NEXT(it, link);
		if (it->w.seq < seq)
			continue;
		STAILQ_REMOVE(&r->items, it, agent_item, link);
		r->bytes -= it->w.data_len;
		r->flying -= it->w.seq < r->sent ? it->n_frames : 0;
		free(it);
	}
	r->next_seq = r->sent = (uint32_t)seq;
	if (kvr_agent__end_request(a, r, KVR_RESP_F_ERROR,
				   "an item does not fit the client's frames", 0) < 0)
		kvr_agent__close_slot(a, r, false); /* no memory */
}

/* A receiver that requests fragments again and again restarts the timer, but makes no progress. */
static bool is_overdue(const struct kvr_agent *a, const struct agent_req *r)
{
	return a->link.now_us - r->progress_us >= AGENT_GIVE_UP_US;
}

/* Give up a request whose items are not acknowledged. */
static void give_up(struct kvr_agent *a, struct agent_req *r)
{
	KVR_SIM_SOMETIMES(AGENT_GIVES_UP);
	a->stats.abandoned++;
	kvr_agent__report_abort(a, r, KVR_AGENT_ABORT_SILENCE, 0);
	if (r->state == AGENT_RUNNING || (!r->direct && r->sent < r->next_seq)) {
		/* The client is gone, but the router must release the booking. The last item may be
		 * unsent because the window is full. */
		kvr_agent__drop_items(r);
		r->acked = r->sent = r->next_seq;
		if (kvr_agent__end_request(
			    a, r, KVR_RESP_F_ERROR,
			    "its items were not acknowledged, s: ", KVR_WIRE_ITEMS_KEPT_S) == 0)
			return; /* retransmitted for the same time again */
	}
	kvr_agent__close_slot(a, r, false);
}

void kvr_agent__retransmit(struct kvr_agent *a, struct agent_req *r)
{
	struct agent_item *it;

	if (r->ack_waits) {
		const struct kvr_wire_hdr h = {
			.source = r->source, .id = r->id, .handle = r->handle};

		r->ack_waits = false;
		kvr_agent__send_ack(a, &h, 0);
		return;
	}
	if (is_overdue(a, r)) {
		give_up(a, r);
		return;
	}
	if (r->pacing) {
		if (!kvr_agent__send_parts(a, r))
			repeat_start(a, r); /* all fragments were sent */
		return;
	}
	STAILQ_FOREACH (it, &r->items, link) {
		if (it->w.seq >= r->sent)
			break;
		KVR_SIM_SOMETIMES(AGENT_ITEM_AGAIN);
		a->stats.items_resent++;
		if (it->n_frames == 1)
			send_item(a, r, it);
		else
			kvr_agent__send_first(a, r, it);
	}
	if (r->prog_fin && !r->prog_done)
		send_progress(a, r);
	r->backoff_us = RTE_MIN(2 * r->backoff_us, AGENT_REPEAT_MAX_US);
	kvr_timer_set(&a->link.timers, &r->repeat, a->link.now_us + r->backoff_us);
	if (r->parts > 0)
		kvr_agent__send_parts(a, r);
}

void kvr_agent__on_response_ack(struct kvr_agent *a, const struct kvr_udp_addr *from,
				const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_response_ack *w = (const void *)body;
	struct agent_req *r = kvr_agent__find_request(a, h->handle);
	struct agent_item *it;

	if (r == NULL || r->source != h->source || r->id != h->id ||
	    (!r->direct && !kvr_udp_addr_equal(from, &a->router)) || w->next_seq > r->sent) {
		a->stats.frames_foreign += r == NULL || r->state != AGENT_OVER;
		return;
	}
	if (r->state == AGENT_OVER || w->next_seq <= r->acked)
		return;
	while ((it = STAILQ_FIRST(&r->items)) != NULL && it->w.seq < w->next_seq) {
		STAILQ_REMOVE_HEAD(&r->items, link);
		r->bytes -= it->w.data_len;
		r->flying -= it->n_frames;
		free(it);
	}
	r->acked = w->next_seq;
	r->unproven = false;
	kvr_timer_stop(&a->link.timers, &r->repeat);
	r->pacing = false;
	r->progress_us = a->link.now_us;
	r->backoff_us = AGENT_REPEAT_US;
	kvr_agent__send_new(a, r);
	if (r->prog_fin && !r->prog_done && !kvr_timer_running(&r->repeat))
		kvr_timer_set(&a->link.timers, &r->repeat, a->link.now_us + r->backoff_us);
	kvr_agent__finish_if_acked(a, r);
}

void kvr_agent__on_missing(struct kvr_agent *a, const struct kvr_udp_addr *from,
			   const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_missing *w = (const void *)body;
	struct agent_req *r = kvr_agent__find_request(a, h->handle);

	if (r == NULL || w->kind != KVR_RESPONSE || r->source != h->source || r->id != h->id ||
	    (!r->direct && !kvr_udp_addr_equal(from, &a->router))) {
		a->stats.frames_foreign++;
		return;
	}
	if (r->state == AGENT_OVER || !kvr_agent__parts_named(a, r, w))
		return;
	if (is_overdue(a, r)) {
		give_up(a, r);
		return;
	}
	if (!r->pacing)
		repeat_start(a, r);
	kvr_agent__send_new(a, r);
}

void kvr_agent__on_progress_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h,
				const uint8_t *body)
{
	const struct kvr_wire_progress_ack *w = (const void *)body;
	struct agent_req *r = kvr_agent__find_request(a, h->handle);

	if (r == NULL || !r->direct || !r->prog_fin || r->prog_done || w->next_seq <= r->prog.seq)
		return;
	r->prog_done = true;
	kvr_agent__finish_if_acked(a, r);
}
