/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_UDP_H
#define KVR_UDP_H

/**
 * @file
 * Datagrams and a clock behind one small interface. The implementation for programs is a
 * non-blocking UDP socket (recvmmsg, sendmmsg); tests use a scripted peer and a counter. Addresses
 * have the form of the protocol: IPv6, with IPv4 as ::ffff:a.b.c.d. Not installed; shared by
 * lib/client and lib/agent.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define KVR_UDP_BURST 64 /* datagrams per call */
#define KVR_UDP_MAX_DGRAM                                                                          \
	9216 /* receive buffer: above the largest frame, to detect longer datagrams */

struct kvr_udp_addr {
	uint8_t ip[16];
	uint16_t port;
	uint16_t pad;	/* 0 */
	uint32_t scope; /* interface of a link-local address, otherwise 0 */
};

/** One datagram. Received data are valid until the next recv, and aligned to 64 bytes. */
struct kvr_udp_msg {
	struct kvr_udp_addr addr;
	uint8_t *data;
	uint32_t len;
};

/** Operations; @p ctx is the context that belongs to the table. */
struct kvr_udp_io {
	/** Send as many messages as possible; the rest is lost. @return the number sent. */
	unsigned int (*send)(void *ctx, const struct kvr_udp_msg m[], unsigned int n);
	/** Receive up to @p n messages. @return the number received; 0: none waits. */
	unsigned int (*recv)(void *ctx, struct kvr_udp_msg m[], unsigned int n);
	/** Monotonic microseconds. */
	uint64_t (*now_us)(void *ctx);
	/** A random number. NULL: use the system's. */
	uint64_t (*random)(void *ctx);
	/** Descriptor to poll for reading; -1: none. */
	int (*fd)(void *ctx);
	/** Free everything. */
	void (*close)(void *ctx);
};

struct kvr_udp {
	const struct kvr_udp_io *io;
	void *ctx;
};

static inline bool kvr_udp_addr_equal(const struct kvr_udp_addr *a, const struct kvr_udp_addr *b)
{
	return a->port == b->port && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

/**
 * Resolve "host", "host:port", "1.2.3.4:port", "[v6]:port" or a bare IPv6 literal. @p port is the
 * default. Names are resolved by the system, which may block.
 * @return 0, -EINVAL (malformed), -ENOENT (unknown name), -EAGAIN (resolver failed), -ENOMEM.
 */
int kvr_udp_resolve(const char *text, uint16_t port, struct kvr_udp_addr *out);

/**
 * Open a socket bound to @p local (any form that kvr_udp_resolve() accepts; NULL: any address and
 * port), with large buffers. It reaches IPv4 and IPv6 peers; bound to an IPv4 address, only IPv4.
 * @return 0 with @p u filled, or -errno of socket(2) and bind(2), -ENOMEM, or of the resolver.
 */
int kvr_udp_open(struct kvr_udp *u, const char *local);

/** Address the socket is bound to. @return 0 or -errno. */
int kvr_udp_local(const struct kvr_udp *u, struct kvr_udp_addr *out);

/** Close; has no effect on a zeroed struct. */
void kvr_udp_close(struct kvr_udp *u);

#endif
