/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEST_PORT_FRAME_H
#define TEST_PORT_FRAME_H

/**
 * @file
 * Frames written byte by byte, with checksums from an independent simple implementation, so that
 * tests do not check the library against itself; and an mbuf on the stack.
 */

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

#include <rte_mbuf.h>

#include "kvr_pkt.h"

#define OUR_MAC	  "\x02\x00\x00\x00\x00\x01"
#define PEER_MAC  "\x02\x00\x00\x00\x00\x02"
#define OUR_IP4	  "\x0a\x00\x00\x01"
#define PEER_IP4  "\x0a\x00\x00\x02"
#define OUR_IP6	  "\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x12\x34\x01"
#define PEER_IP6  "\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"
#define OUR_PORT  7650u
#define PEER_PORT 40000u

struct frame {
	uint8_t b[2048];
	uint32_t len;
};

static inline void append_bytes(struct frame *f, const void *p, uint32_t n)
{
	memcpy(f->b + f->len, p, n);
	f->len += n;
}

static inline void append_be16(struct frame *f, uint32_t v)
{
	f->b[f->len++] = (uint8_t)(v >> 8);
	f->b[f->len++] = (uint8_t)v;
}

/* RFC 1071 in its simplest form; odd lengths are padded with zero. */
static inline uint32_t slow_sum(const uint8_t *p, uint32_t n, uint32_t sum)
{
	for (uint32_t i = 0; i < n; i++)
		sum += i % 2 == 0 ? (uint32_t)p[i] << 8 : p[i];
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/*
 * Checksum of `n` bytes of `proto` after an IP header at `ip` (version 4 or 6 by its first nibble).
 */
static inline uint32_t slow_l4_sum(const uint8_t *ip, const uint8_t *l4, uint32_t n, uint32_t proto)
{
	const uint32_t sum = ip[0] >> 4 == 4 ? slow_sum(ip + 12, 8, 0) : slow_sum(ip + 8, 32, 0);

	return slow_sum(l4, n, sum + proto + n);
}

static inline void set_be16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static inline void add_eth(struct frame *f, const void *dst, const void *src, uint32_t type)
{
	f->len = 0;
	append_bytes(f, dst, 6);
	append_bytes(f, src, 6);
	append_be16(f, type);
}

/* IPv4 header for `payload` following bytes, with `words` of options. Returns its offset. */
static inline uint32_t add_ip4(struct frame *f, const void *src, const void *dst, uint32_t proto,
			       uint32_t payload, uint32_t words)
{
	const uint32_t at = f->len, hl = 20 + 4 * words;
	const uint8_t start[2] = {(uint8_t)(0x40 | hl / 4), 0};

	append_bytes(f, start, 2);
	append_be16(f, hl + payload);
	append_be16(f, 0x1234);
	append_be16(f, 0);
	append_be16(f, 64 << 8 | proto);
	append_be16(f, 0);
	append_bytes(f, src, 4);
	append_bytes(f, dst, 4);
	memset(f->b + f->len, 1, 4 * words); /* no-operation options */
	f->len += 4 * words;
	set_be16(f->b + at + 10, ~slow_sum(f->b + at, hl, 0));
	return at;
}

static inline uint32_t add_ip6(struct frame *f, const void *src, const void *dst, uint32_t next,
			       uint32_t payload, uint32_t hop_limit)
{
	const uint32_t at = f->len;

	append_be16(f, 0x6000);
	append_be16(f, 0);
	append_be16(f, payload);
	append_be16(f, next << 8 | hop_limit);
	append_bytes(f, src, 16);
	append_bytes(f, dst, 16);
	return at;
}

static inline void add_udp(struct frame *f, uint32_t ip_at, uint32_t sport, uint32_t dport,
			   uint32_t payload)
{
	const uint32_t at = f->len;

	append_be16(f, sport);
	append_be16(f, dport);
	append_be16(f, 8 + payload);
	append_be16(f, 0);
	for (uint32_t i = 0; i < payload; i++)
		f->b[f->len++] = (uint8_t)(i * 7 + 1);
	set_be16(f->b + at + 6, ~slow_l4_sum(f->b + ip_at, f->b + at, 8 + payload, 17));
}

/* A valid datagram from the peer to the router. */
static inline void make_good4(struct frame *f, uint32_t payload)
{
	add_eth(f, OUR_MAC, PEER_MAC, 0x0800);
	add_udp(f, add_ip4(f, PEER_IP4, OUR_IP4, 17, 8 + payload, 0), PEER_PORT, OUR_PORT, payload);
}

static inline void make_good6(struct frame *f, uint32_t payload)
{
	add_eth(f, OUR_MAC, PEER_MAC, 0x86dd);
	add_udp(f, add_ip6(f, PEER_IP6, OUR_IP6, 17, 8 + payload, 64), PEER_PORT, OUR_PORT,
		payload);
}

/* Insert `n` bytes of tags after the MACs. */
static inline void insert_tag(struct frame *f, uint32_t type, uint32_t vid)
{
	memmove(f->b + 16, f->b + 12, f->len - 12);
	set_be16(f->b + 12, type);
	set_be16(f->b + 14, vid);
	f->len += 4;
}

static inline void make_rules(struct kvr_pkt_rules *r)
{
	memset(r, 0, sizeof(*r));
	memcpy(r->local.mac, OUR_MAC, 6);
	memcpy(r->local.ip4, OUR_IP4, 4);
	memcpy(r->local.ip6, OUR_IP6, 16);
	r->local.udp_port = OUR_PORT;
	r->local.max_frame4 = 1472;
	r->local.max_frame6 = 1452;
	r->local.port = 3;
}

/* One segment over a caller's buffer. */
static inline void make_mbuf(struct rte_mbuf *m, void *buf, uint16_t len, uint16_t headroom,
			     const void *data, uint16_t n)
{
	memset(m, 0, sizeof(*m));
	m->buf_addr = buf;
	m->buf_len = len;
	m->data_off = headroom;
	m->data_len = n;
	m->pkt_len = n;
	m->nb_segs = 1;
	rte_mbuf_refcnt_set(m, 1);
	if (n > 0)
		memcpy((uint8_t *)buf + headroom, data, n);
}

#endif
