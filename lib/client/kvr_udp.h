/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_UDP_H
#define KVR_UDP_H

/**
 * @file
 * Datagrams and a clock behind one small interface: what a protocol engine needs of the outside
 * world. The real one is a non-blocking UDP socket (recvmmsg, sendmmsg); tests put a scripted
 * peer and a counter in its place. Addresses have the form the protocol uses on the wire: IPv6,
 * IPv4 as ::ffff:a.b.c.d, one form everywhere. Not installed: shared by lib/client and lib/agent.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define KVR_UDP_BURST	  64   /* datagrams a call */
#define KVR_UDP_MAX_DGRAM 9216 /* receive buffer: above the largest frame, to see that it is */

struct kvr_udp_addr {
	uint8_t ip[16];
	uint16_t port;
	uint16_t pad;	/* 0 */
	uint32_t scope; /* interface of a link-local address, else 0 */
};

/** One datagram. Received data is valid until the next recv and aligned to 64 bytes. */
struct kvr_udp_msg {
	struct kvr_udp_addr addr;
	uint8_t *data;
	uint32_t len;
};

/** The outside world; @p ctx is what came with the table. */
struct kvr_udp_io {
	/** Send what the network takes now; the rest is lost, as datagrams are. @return sent. */
	unsigned int (*send)(void *ctx, const struct kvr_udp_msg m[], unsigned int n);
	/** Fill up to @p n messages. @return how many, 0 when none waits. */
	unsigned int (*recv)(void *ctx, struct kvr_udp_msg m[], unsigned int n);
	/** Monotonic microseconds. */
	uint64_t (*now_us)(void *ctx);
	/** A random word, any value. NULL: the system's. */
	uint64_t (*random)(void *ctx);
	/** Descriptor to poll for reading, -1 without one. */
	int (*fd)(void *ctx);
	/** Release everything. */
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
 * Resolve "host", "host:port", "1.2.3.4:port", "[v6]:port" or a bare IPv6 literal; @p port is used
 * when the text has none. Names go to the system's resolver, which may block.
 * @return 0, -EINVAL (malformed), -ENOENT (unknown name), -EAGAIN (resolver failed), -ENOMEM.
 */
int kvr_udp_resolve(const char *text, uint16_t port, struct kvr_udp_addr *out);

/**
 * Open a socket bound to @p local (resolve form; NULL: any address and port) that reaches IPv4 and
 * IPv6 peers alike, with large buffers. Bound to an IPv4 address it reaches IPv4 only.
 * @return 0 with @p u filled, or -errno of socket(2) and bind(2), -ENOMEM, or of the resolver.
 */
int kvr_udp_open(struct kvr_udp *u, const char *local);

/** Address the socket is bound to. @return 0 or -errno. */
int kvr_udp_local(const struct kvr_udp *u, struct kvr_udp_addr *out);

/** Close; a zeroed one is left alone. */
void kvr_udp_close(struct kvr_udp *u);

#endif
