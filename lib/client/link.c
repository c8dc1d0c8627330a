/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages over datagrams: bursts of frames out, checks and reassembly in, and the timers of a
 * call.
 */
#include "kvr_link.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include <rte_common.h>

#define LINK_ASSEMBLY_US     5000000 /* incomplete messages are dropped after this time */
#define LINK_QUIET_US	     5000    /* fragments missing after this silence are requested */
#define LINK_CLIENT_FRAGMENT 1024    /* average bytes per fragment to a client */
#define LINK_REMEMBERED	     4096    /* recently completed messages, to detect copies */
#define LINK_RX_BURSTS	     16	     /* per call; the rest keeps the descriptor readable */

/* A fragment kept for reassembly; its body follows. */
struct held_frame {
	struct kvr_udp_addr from;
	struct kvr_wire_hdr h;
	uint8_t body[];
};

static void drop_frame(void *arg, void *frame)
{
	free(frame);
}

/* Create the reassembly for the first fragment: it takes megabytes, and most clients never receive
 * fragments. The router is the only sender, so its quota is the whole. */
static void init_assembly(struct kvr_link *link)
{
	const bool agent = link->conf.role == KVR_ROLE_BIT_AGENT;
	/* An agent accepts every message. Answers to a client are shorter, and come in frames of at
	 * least the default size. */
	const uint64_t bytes =
		RTE_MAX(link->conf.assembly_bytes, agent ? KVR_WIRE_MAX_DISPATCH : 0);
	const uint32_t frames =
		(uint32_t)(agent ? RTE_MAX(bytes / KVR_WIRE_MIN_FRAGMENT, KVR_WIRE_MAX_FRAGMENTS)
				 : RTE_MAX(bytes / LINK_CLIENT_FRAGMENT, 2u));
	const uint32_t messages = agent ? 1024 : 512;
	const struct kvr_reasm_conf rc = {.max_messages = messages,
					  .max_frames = frames,
					  .max_bytes = bytes,
					  .peer_max_messages = messages,
					  .peer_max_frames = frames,
					  .peer_max_bytes = bytes,
					  .msg_max_frames =
						  (uint32_t)RTE_MIN(frames, KVR_WIRE_MAX_FRAGMENTS),
					  .remember = LINK_REMEMBERED,
					  .timeout = LINK_ASSEMBLY_US,
					  .quiet = LINK_QUIET_US,
					  .seed = link->conf.seed,
					  .drop = drop_frame};

	link->reasm = kvr_reasm_create(&rc);
}

int kvr_link_open(const char *router, uint16_t port, const char *bind, struct kvr_udp_addr *to,
		  struct kvr_udp *udp)
{
	int rc;

	if (router == NULL)
		return -EINVAL;
	rc = kvr_udp_resolve(router, port != 0 ? port : KVR_WIRE_PORT, to);
	return rc == 0 ? kvr_udp_open(udp, bind) : rc;
}

uint64_t kvr_link_random(const struct kvr_udp *udp)
{
	struct timespec ts;
	uint64_t v = 0;

	if (udp->io->random != NULL)
		return udp->io->random(udp->ctx) | 1;
	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) == sizeof(v) && v != 0)
		return v;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int kvr_link_init(struct kvr_link *link, const struct kvr_udp *udp,
		  const struct kvr_link_conf *conf)
{
	int rc;

	*link = (struct kvr_link){.conf = *conf, .udp = *udp};
	rc = kvr_timers_init(&link->timers, conf->timers);
	link->tx_mem = malloc((size_t)KVR_UDP_BURST * KVR_WIRE_MAX_FRAME);
	if (rc < 0 || link->tx_mem == NULL) {
		kvr_link_fini(link);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < KVR_UDP_BURST; i++)
		link->tx[i].data = link->tx_mem + (size_t)i * KVR_WIRE_MAX_FRAME;
	return 0;
}

void kvr_link_fini(struct kvr_link *link)
{
	kvr_reasm_destroy(link->reasm);
	kvr_timers_fini(&link->timers);
	kvr_udp_close(&link->udp);
	free(link->tx_mem);
	*link = (struct kvr_link){0};
}

void kvr_link_repeat(struct kvr_link *link, struct kvr_timer *t, uint32_t *gap_us, uint32_t max_us,
		     uint64_t until_us)
{
	kvr_timer_set(&link->timers, t, RTE_MIN(link->now_us + *gap_us, until_us));
	*gap_us = RTE_MIN(2 * *gap_us, max_us);
}

void kvr_link_step(struct kvr_link *link, struct kvr_timer *t, uint64_t due_us)
{
	kvr_timer_set(&link->timers, t, due_us);
	link->strict_us = RTE_MAX(link->strict_us, due_us);
}

struct kvr_wire_ids kvr_link_ids(struct kvr_link *link, uint64_t source, uint64_t id,
				 uint64_t handle)
{
	return (struct kvr_wire_ids){.source = source,
				     .id = id,
				     .handle = handle,
				     .epoch = link->conf.epoch,
				     .msg_seq = ++link->msg_seq};
}

uint8_t *kvr_link_frame(struct kvr_link *link)
{
	if (link->n_tx == KVR_UDP_BURST)
		kvr_link_flush(link);
	return link->tx[link->n_tx].data;
}

void kvr_link_queue(struct kvr_link *link, const struct kvr_udp_addr *to, int len)
{
	assert(len > 0 && link->n_tx < KVR_UDP_BURST);
	if (len <= 0)
		return;
	link->tx[link->n_tx].addr = *to;
	link->tx[link->n_tx++].len = (uint32_t)len;
	link->flush_us = 0;
}

void kvr_link_send(struct kvr_link *link, const struct kvr_udp_addr *to, enum kvr_wire_kind kind,
		   struct kvr_wire_ids ids, const void *body, uint32_t len)
{
	uint8_t *f = kvr_link_frame(link);

	kvr_link_queue(link, to,
		       kvr_put_message(f, KVR_WIRE_MAX_FRAME, (uint8_t)kind, &ids,
				       (struct kvr_slice){body, len}, (struct kvr_slice){NULL, 0}));
}

void kvr_link_send_later(struct kvr_link *link, const struct kvr_udp_addr *to,
			 enum kvr_wire_kind kind, struct kvr_wire_ids ids, const void *body,
			 uint32_t len, uint64_t due_us)
{
	const bool alone =
		link->n_tx == 0 || link->n_tx == KVR_UDP_BURST; /* a full burst is flushed first */
	const uint64_t before = alone ? due_us : link->flush_us;

	kvr_link_send(link, to, kind, ids, body, len);
	link->flush_us = RTE_MIN(before, due_us);
}

bool kvr_link_send_frames(struct kvr_link *link, const struct kvr_udp_addr *to, struct kvr_frag *f,
			  const void *body, uint32_t max)
{
	uint32_t off, len;

	while (max-- > 0) {
		uint8_t *frame = kvr_link_frame(link);

		if (!kvr_frag_next(f, frame, &off, &len))
			return false;
		if (len > 0)
			memcpy(frame + KVR_WIRE_MIN_FRAME, (const uint8_t *)body + off, len);
		kvr_link_queue(link, to, (int)(KVR_WIRE_MIN_FRAME + len));
	}
	return f->next < f->msg_len;
}

void kvr_link_flush(struct kvr_link *link)
{
	unsigned int sent;

	if (link->n_tx == 0)
		return;
	sent = link->udp.io->send(link->udp.ctx, link->tx, link->n_tx);
	link->stats.sent += sent;
	link->stats.unsent += link->n_tx - sent;
	link->n_tx = 0;
}

static void deliver_message(struct kvr_link *link, const struct kvr_udp_addr *from,
			    const struct kvr_wire_hdr *h, const void *body)
{
	uint8_t whole[sizeof(struct kvr_wire_rejected)] = {0};
	uint32_t len = h->msg_len;

	if (kvr_body_check(h->kind, body, len, NULL) != 0) {
		link->stats.bad++;
		return;
	}
	if (h->kind == KVR_REJECTED && len < sizeof(whole)) {
		memcpy(whole, body, len); /* optional details are zero */
		body = whole;
		len = sizeof(whole);
	}
	link->conf.ops->message(link->conf.user, from, h, body, len);
}

/* Join the fragments of a complete message, pass it up, and free them. */
static void join_fragments(struct kvr_link *link, const struct kvr_udp_addr *from,
			   const struct kvr_wire_hdr *h, const struct kvr_reasm_msg *msg)
{
	uint8_t *body = malloc(msg->len);

	for (uint32_t i = 0; i < msg->n_frags; i++) {
		if (body != NULL)
			memcpy(body + msg->frag[i].off, msg->frag[i].data, msg->frag[i].len);
		free(msg->frag[i].frame);
	}
	if (body != NULL)
		deliver_message(link, from, h, body);
	free(body);
}

/* Add a fragment; takes over @p f. @return as kvr_reasm_add(). */
static enum kvr_reasm_result add_fragment(struct kvr_link *link, const struct kvr_udp_addr *from,
					  struct held_frame *f)
{
	const struct kvr_wire_hdr h = f->h;
	struct kvr_peer peer = {0};
	struct kvr_reasm_msg msg;
	enum kvr_reasm_result rc;

	memcpy(peer.b, from->ip, sizeof(from->ip));
	rc = kvr_reasm_add(link->reasm, &peer, &f->h, f->body, f, link->now_us, &msg);
	if (rc == KVR_REASM_DONE && h.frag_off == 0 && link->conf.ops->again != NULL &&
	    link->conf.ops->again(link->conf.user, &f->h)) {
		kvr_reasm_forget(link->reasm, &peer, &h);
		rc = kvr_reasm_add(link->reasm, &peer, &f->h, f->body, f, link->now_us, &msg);
	}
	if (rc == KVR_REASM_COMPLETE)
		join_fragments(link, from, &h, &msg);
	else if (rc != KVR_REASM_HELD)
		free(f);
	return rc;
}

static void handle_fragment(struct kvr_link *link, const struct kvr_udp_msg *m)
{
	struct held_frame *f;

	if (link->conf.ops->fragment != NULL &&
	    !link->conf.ops->fragment(link->conf.user, &m->addr, (const void *)m->data))
		return;
	if (link->reasm == NULL && link->conf.assembly_bytes != 0)
		init_assembly(link);
	f = link->reasm != NULL ? malloc(offsetof(struct held_frame, h) + m->len) : NULL;
	if (f == NULL) {
		link->stats.bad++;
		return;
	}
	f->from = m->addr;
	memcpy(&f->h, m->data, sizeof(f->h));
	memcpy(f->body, m->data + sizeof(f->h), m->len - sizeof(f->h));
	link->stats.bad += add_fragment(link, &m->addr, f) == KVR_REASM_REFUSED;
}

static void handle_frame(struct kvr_link *link, const struct kvr_udp_msg *m)
{
	const struct kvr_wire_hdr *h = (const void *)m->data;

	link->stats.received++;
	if (kvr_frame_check(m->data, m->len, link->conf.role) != 0) {
		link->stats.bad++;
	} else if (!link->conf.ops->wants(link->conf.user, &m->addr, h)) {
		link->stats.foreign++;
	} else if (kvr_frame_whole(h)) {
		deliver_message(link, &m->addr, h, kvr_frame_body(h));
	} else {
		handle_fragment(link, m);
	}
}

/* Request missing fragments from the senders of silent messages. The router keeps no LOADS to
 * retransmit. */
static void request_missing(struct kvr_link *link)
{
	struct kvr_reasm_lack lack;

	while (kvr_reasm_lacking(link->reasm, link->now_us, &lack)) {
		const struct held_frame *f = lack.frame;

		if (f->h.kind == KVR_LOADS)
			continue;
		kvr_link_send(link, &f->from, KVR_MISSING,
			      kvr_link_ids(link, f->h.source, f->h.id, f->h.handle), &lack.missing,
			      lack.len);
	}
}

static void run_timers(struct kvr_link *link)
{
	struct kvr_timer *t;

	if (link->reasm != NULL) {
		link->stats.expired += kvr_reasm_expire(link->reasm, link->now_us, UINT32_MAX);
		request_missing(link);
	}
	while ((t = kvr_timers_expire(&link->timers, link->now_us)) != NULL)
		link->conf.ops->timer(link->conf.user, t);
	if (link->flush_us <= link->now_us)
		kvr_link_flush(link);
}

void kvr_link_run(struct kvr_link *link)
{
	kvr_link_tick(link);
	run_timers(link);
}

unsigned int kvr_link_process(struct kvr_link *link)
{
	struct kvr_udp_msg m[KVR_UDP_BURST];
	unsigned int n, total = 0;

	kvr_link_tick(link);
	for (int i = 0; i < LINK_RX_BURSTS; i++) {
		n = link->udp.io->recv(link->udp.ctx, m, KVR_UDP_BURST);
		for (unsigned int k = 0; k < n; k++)
			handle_frame(link, &m[k]);
		total += n;
		if (n < KVR_UDP_BURST)
			break;
	}
	run_timers(link);
	return total;
}

uint64_t kvr_link_due_us(const struct kvr_link *link)
{
	uint64_t next = kvr_timers_next(&link->timers);

	if (link->reasm != NULL)
		next = RTE_MIN(next, kvr_reasm_quiet_at(link->reasm));
	return link->n_tx > 0 ? RTE_MIN(next, link->flush_us) : next;
}

int kvr_link_timeout_ms(const struct kvr_link *link)
{
	const uint64_t next = kvr_link_due_us(link);
	uint64_t now;

	if (next == 0)
		return 0;
	if (next == KVR_TIMER_NEVER)
		return -1;
	now = link->udp.io->now_us(link->udp.ctx);
	if (next <= now)
		return 0;
	return (int)((next - now + 999) / 1000 < INT32_MAX ? (next - now + 999) / 1000 : INT32_MAX);
}

bool kvr_link_strict(const struct kvr_link *link)
{
	return link->strict_us > link->now_us ||
	       (link->reasm != NULL && kvr_reasm_quiet_at(link->reasm) != KVR_TIMER_NEVER);
}
