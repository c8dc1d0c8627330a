/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAKE_IO_H
#define FAKE_IO_H

/**
 * @file
 * A world without sockets or time for protocol tests. Frames sent by the code under test appear in
 * `out`, frames put into `in` are received next, and the clock is a number. One instance per test.
 */

#include "kvr_client_on.h"
#include "kvr_put.h"
#include "kvr_udp.h"

#include "kvr_test.h"

#define FAKE_FRAMES 8192

struct fake_frame {
	struct kvr_udp_addr addr;
	uint32_t len;
	_Alignas(64) uint8_t data[1984];
};

struct fake_io {
	struct kvr_udp udp;
	uint64_t now_us;
	unsigned int n_out, seen; /* seen: position of fake_next() */
	unsigned int n_in, taken;
	bool closed;
	bool in_after_send; /* the code must send before it receives */
	struct fake_frame out[FAKE_FRAMES];
	struct fake_frame in[512];
};

static unsigned int fake_send(void *ctx, const struct kvr_udp_msg m[], unsigned int n)
{
	struct fake_io *f = ctx;

	for (unsigned int i = 0; i < n; i++) {
		CU_ASSERT_FATAL(m[i].len <= sizeof(f->out[0].data));
		CU_ASSERT_FATAL(f->n_out < FAKE_FRAMES);
		f->out[f->n_out].addr = m[i].addr;
		f->out[f->n_out].len = m[i].len;
		memcpy(f->out[f->n_out++].data, m[i].data, m[i].len);
	}
	return n;
}

static unsigned int fake_recv(void *ctx, struct kvr_udp_msg m[], unsigned int n)
{
	struct fake_io *f = ctx;
	unsigned int i;

	for (i = 0; i < n && f->taken < f->n_in && !(f->in_after_send && f->n_out == 0);
	     i++, f->taken++) {
		m[i].addr = f->in[f->taken].addr;
		m[i].data = f->in[f->taken].data;
		m[i].len = f->in[f->taken].len;
	}
	if (f->taken == f->n_in && i == 0)
		f->taken = f->n_in = 0;
	return i;
}

static uint64_t fake_now(void *ctx)
{
	return ((struct fake_io *)ctx)->now_us;
}

static int fake_fd(void *ctx)
{
	return -1;
}

static void fake_close(void *ctx)
{
	((struct fake_io *)ctx)->closed = true;
}

static const struct kvr_udp_io fake_ops = {.send = fake_send,
					   .recv = fake_recv,
					   .now_us = fake_now,
					   .fd = fake_fd,
					   .close = fake_close};

static inline struct kvr_udp_addr fake_addr(uint8_t host, uint16_t port)
{
	return (struct kvr_udp_addr){.ip = {[10] = 0xff, 0xff, 10, 0, 0, host}, .port = port};
}

static inline void fake_reset(struct fake_io *f)
{
	f->udp = (struct kvr_udp){.io = &fake_ops, .ctx = f};
	f->now_us = 1000000;
	f->n_out = f->seen = f->n_in = f->taken = 0;
	f->closed = f->in_after_send = false;
}

/** Space for one incoming frame: put a frame there, then call fake_push(). */
static inline uint8_t *fake_slot(struct fake_io *f)
{
	CU_ASSERT_FATAL(f->n_in < 512);
	return f->in[f->n_in].data;
}

static inline void fake_push(struct fake_io *f, struct kvr_udp_addr from, int len)
{
	CU_ASSERT_FATAL(len > 0 && len <= (int)sizeof(f->in[0].data));
	f->in[f->n_in].addr = from;
	f->in[f->n_in++].len = (uint32_t)len;
}

/** Header of the next unread frame of @p kind; skips earlier frames. */
static inline const struct kvr_wire_hdr *fake_next(struct fake_io *f, uint8_t kind)
{
	while (f->seen < f->n_out) {
		const struct kvr_wire_hdr *h = (const void *)f->out[f->seen++].data;

		if (h->kind == kind)
			return h;
	}
	return NULL;
}

/** Destination of the frame that fake_next() returned last. */
static inline const struct kvr_udp_addr *fake_to(const struct fake_io *f)
{
	return &f->out[f->seen - 1].addr;
}

/** Number of unread frames of @p kind. */
static inline unsigned int fake_count(const struct fake_io *f, uint8_t kind)
{
	unsigned int n = 0;

	for (unsigned int i = f->seen; i < f->n_out; i++)
		n += ((const struct kvr_wire_hdr *)(const void *)f->out[i].data)->kind == kind;
	return n;
}

/** Forget all frames sent so far. */
static inline void fake_skip(struct fake_io *f)
{
	f->seen = f->n_out = 0;
}

#endif
