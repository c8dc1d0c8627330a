/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Items of several frames. The first copy is sent at the pace of PROTOCOL.md, section 4. Afterwards
 * only fragments named by MISSING are retransmitted and, without an answer, the first fragment,
 * which makes the receiver report the missing ones. Until its first acknowledgement, an address
 * that may be forged gets no more frames than it would get for short items.
 */
#include "agent_pvt.h"
#include "kvr_sim.h"

#include <string.h>

#include <rte_common.h>

uint32_t kvr_agent__unit(const struct agent_req *req)
{
	return (req->frame_bytes - KVR_WIRE_MIN_FRAME) & ~7u;
}

static const struct kvr_udp_addr *receiver_of(const struct kvr_agent *agent,
					      const struct agent_req *req)
{
	return req->direct ? &req->client : &agent->router;
}

static void send_part(struct kvr_agent *agent, const struct agent_req *req,
		      const struct agent_item *it, uint32_t k)
{
	struct kvr_frag f;

	if (kvr_frag_init(&f, KVR_RESPONSE, &it->ids, it->len, req->frame_bytes) < 0)
		return;
	kvr_frag_seek(&f, k);
	kvr_link_send_frames(&agent->link, receiver_of(agent, req), &f, &it->w, 1);
}

void kvr_agent__send_first(struct kvr_agent *agent, struct agent_req *req,
			   const struct agent_item *it)
{
	if (it->next == 0)
		req->parts++; /* not sent yet: send all of it */
	else
		send_part(agent, req, it, 0);
}

/* Number of fragments of the first copy that may be sent now. */
static uint32_t count_first_copy(const struct agent_req *req, const struct agent_item *it)
{
	return req->unproven ? RTE_MIN(it->n_frames, KVR_WIRE_UNPROVEN_ITEMS) : it->n_frames;
}

/* Fragments named by MISSING come first, because they are older. */
static uint32_t take_next(struct agent_item *it)
{
	uint32_t w = 0;

	if (it->n_again == 0)
		return it->next++;
	while (it->again[w] == 0)
		w++;
	it->n_again--;
	w = w * 64 + (uint32_t)__builtin_ctzll(it->again[w]);
	it->again[w / 64] &= ~(UINT64_C(1) << w % 64);
	return w;
}

bool kvr_agent__send_parts(struct kvr_agent *agent, struct agent_req *req)
{
	uint32_t n = 0, open = 0;
	struct agent_item *it;

	if (agent->link.now_us >= req->paced_us) {
		STAILQ_FOREACH (it, &req->items, link) {
			if (it->w.seq >= req->sent)
				break;
			if (it->n_frames == 1)
				continue;
			for (; n < AGENT_PACE_FRAMES &&
			       (it->n_again > 0 || it->next < count_first_copy(req, it));
			     n++)
				send_part(agent, req, it, take_next(it));
			open += it->n_again > 0 || it->next < count_first_copy(req, it);
		}
		req->paced_us = agent->link.now_us + n * (AGENT_PACE_US / AGENT_PACE_FRAMES);
		req->parts = open;
	}
	req->pacing = req->parts > 0;
	if (req->pacing)
		kvr_link_step(&agent->link, &req->repeat, req->paced_us);
	return req->pacing;
}

void kvr_agent__renumber_items(struct kvr_agent *agent, struct agent_req *req)
{
	struct agent_item *it;

	STAILQ_FOREACH (it, &req->items, link) {
		if (it->w.seq >= req->sent)
			break;
		if (it->n_frames == 1 || it->next < it->n_frames)
			continue;
		it->ids = kvr_link_ids(&agent->link, req->source, req->id, req->handle);
		it->next = it->n_again = 0;
	}
}

/* The sent item that MISSING refers to, or NULL. */
static struct agent_item *item_of(const struct agent_req *req, const struct kvr_wire_missing *w)
{
	struct agent_item *it;

	STAILQ_FOREACH (it, &req->items, link)
		if (it->ids.msg_seq == w->msg_seq)
			return it->w.seq < req->sent && it->n_frames > 1 && it->len == w->msg_len &&
					       w->unit == kvr_agent__unit(req)
				       ? it
				       : NULL;
	return NULL;
}

/* Mark the named fragments that were sent; the others will be sent anyway. */
static void mark_missing(struct agent_item *it, const struct kvr_wire_missing *w)
{
	it->n_again = 0;
	for (uint32_t i = 0; i < (it->n_frames + 63) / 64; i++) {
		const uint32_t at = i - w->first / 64;
		const uint32_t sent = it->next > i * 64 ? it->next - i * 64 : 0;
		uint64_t word = 0;

		if (at < w->n_words)
			memcpy(&word, (const uint8_t *)(w + 1) + at * 8u, sizeof(word));
		it->again[i] = sent < 64 ? word & ((UINT64_C(1) << sent) - 1) : word;
		it->n_again += (uint32_t)__builtin_popcountll(it->again[i]);
	}
}

bool kvr_agent__parts_named(struct kvr_agent *agent, struct agent_req *req,
			    const struct kvr_wire_missing *w)
{
	struct agent_item *it = item_of(req, w);

	if (it == NULL)
		return false;
	KVR_SIM_SOMETIMES(AGENT_PART_AGAIN);
	mark_missing(it, w);
	agent->stats.fragments_again += it->n_again;
	req->parts++;
	req->unproven = false; /* the client received a fragment, so its address is valid */
	return true;
}
