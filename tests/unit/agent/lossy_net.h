/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOSSY_NET_H
#define LOSSY_NET_H

/**
 * @file
 * A network in virtual time that loses, repeats, delays and reorders datagrams. Ends plug their
 * sockets into it; a router uses net_send() and net_receive(). Random with a seed: a failure
 * repeats with its seed.
 */

#include "kvr_agent_on.h"
#include "kvr_client_on.h"
#include "kvr_rand.h"
#include "kvr_test.h"
#include "kvr_udp.h"

#include <stdlib.h>
#include <string.h>

#define FLIGHTS 65536

struct flight {
	uint64_t at_us;
	struct kvr_udp_addr from, to;
	uint32_t len;
	uint8_t *data;
};

/* The network; one object for all ends. */
static struct {
	uint64_t now_us;
	struct kvr_rand rnd;
	uint32_t loss, dup; /* per 1,000 */
	uint32_t max_delay_us;
	struct flight f[FLIGHTS];
	uint32_t n;
} wire;

struct end {
	struct kvr_udp_addr at;
	struct kvr_udp udp;
	_Alignas(64) uint8_t rx[KVR_UDP_BURST][2048];
};

static inline void put_flight(const struct kvr_udp_addr *from, const struct kvr_udp_addr *to,
			      const void *data, uint32_t len)
{
	struct flight *f = &wire.f[wire.n++];

	CU_ASSERT_FATAL(wire.n < FLIGHTS && len <= 2048);
	*f = (struct flight){.at_us = wire.now_us + 20 +
				      kvr_rand_below(&wire.rnd, wire.max_delay_us + 1),
			     .from = *from,
			     .to = *to,
			     .len = len};
	f->data = aligned_alloc(64, 2048);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f->data);
	memcpy(f->data, data, len);
}

static inline void net_send(const struct kvr_udp_addr *from, const struct kvr_udp_addr *to,
			    const void *data, uint32_t len)
{
	if (kvr_rand_below(&wire.rnd, 1000) < wire.loss)
		return;
	put_flight(from, to, data, len);
	if (kvr_rand_below(&wire.rnd, 1000) < wire.dup)
		put_flight(from, to, data, len);
}

static inline unsigned int end_send(void *ctx, const struct kvr_udp_msg m[], unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		net_send(&((struct end *)ctx)->at, &m[i].addr, m[i].data, m[i].len);
	return n;
}

/* Remove a frame that arrived at @p at; in any order, because delays are random. */
static inline bool net_receive(const struct kvr_udp_addr *at, struct flight *out)
{
	for (uint32_t i = 0; i < wire.n; i++) {
		if (wire.f[i].at_us <= wire.now_us && kvr_udp_addr_equal(&wire.f[i].to, at)) {
			*out = wire.f[i];
			wire.f[i] = wire.f[--wire.n];
			return true;
		}
	}
	return false;
}

static inline unsigned int end_recv(void *ctx, struct kvr_udp_msg m[], unsigned int n)
{
	struct end *e = ctx;
	struct flight f;
	unsigned int i;

	for (i = 0; i < n && net_receive(&e->at, &f); i++) {
		memcpy(e->rx[i], f.data, f.len);
		free(f.data);
		m[i] = (struct kvr_udp_msg){f.from, e->rx[i], f.len};
	}
	return i;
}

static inline uint64_t end_now(void *ctx)
{
	return wire.now_us;
}

static inline int end_fd(void *ctx)
{
	return -1;
}

static inline void end_close(void *ctx)
{
}

static const struct kvr_udp_io end_io = {
	.send = end_send, .recv = end_recv, .now_us = end_now, .fd = end_fd, .close = end_close};

/** Start an empty network; @p loss and @p dup per 1,000 frames. */
static inline void net_start(uint64_t seed, uint32_t loss, uint32_t dup, uint32_t max_delay_us)
{
	wire.now_us = 1000000;
	wire.n = 0;
	wire.loss = loss;
	wire.dup = dup;
	wire.max_delay_us = max_delay_us;
	kvr_rand_init(&wire.rnd, seed);
}

static inline void net_stop(void)
{
	while (wire.n > 0)
		free(wire.f[--wire.n].data);
}

static inline struct kvr_udp_addr net_addr(uint8_t host, uint16_t port)
{
	return (struct kvr_udp_addr){.ip = {[15] = host}, .port = port};
}

#endif
