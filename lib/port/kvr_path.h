/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PATH_H
#define KVR_PATH_H

/**
 * @file
 * Network path to a peer: everything needed to send it a datagram, learnt from a datagram it sent.
 * 32 bytes without hidden padding, so that paths can be stored, compared and hashed as bytes. The
 * first 24 bytes identify the peer; the last 8 describe how to reach it and may change (MAC after a
 * fail-over, accepted frame size).
 *
 * There is no routing table: an answer goes back to the MAC of the received frame, which is the
 * peer's or its gateway's. kvr_port_resolve() provides paths to peers that have not sent anything
 * yet.
 */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_common.h>
#include <rte_mbuf.h>

#include "kvr_rand.h"

/** A zeroed path (family 0) is invalid. */
struct kvr_path {
	uint8_t ip[16];	     /* IPv6, or IPv4 as ::ffff:a.b.c.d */
	uint16_t udp_port;   /* host byte order */
	uint16_t vlan;	     /* inner (or only) VLAN id, 0 = untagged */
	uint16_t vlan_outer; /* QinQ: outer id, 0 = none; with KVR_PATH_OUTER_8100 */
	uint8_t port;	     /* index of the router's port (kvr_port_index()) */
	uint8_t family;	     /* 4 or 6 */
	uint8_t mac[6];	     /* next hop */
	uint16_t max_frame;  /* largest UDP payload that may be sent, bytes */
};
static_assert(sizeof(struct kvr_path) == 32, "paths are stored by the million");

#define KVR_PATH_ID_BYTES   24u
#define KVR_PATH_OUTER_8100 0x8000u /* the outer tag's EtherType is 0x8100 instead of 0x88a8 */

/** The router's end of every path of one port: contents of the source fields. */
struct kvr_local {
	uint8_t mac[6];
	uint16_t udp_port;   /* host byte order */
	uint8_t ip6[16];     /* all zero: no IPv6 address */
	uint8_t ip4[4];	     /* network byte order; 0.0.0.0: no IPv4 address */
	uint16_t max_frame4; /* largest UDP payload of this port's MTU over IPv4, bytes */
	uint16_t max_frame6; /* ... over IPv6 */
	uint8_t tx_cksum;    /* enum kvr_cksum, resolved */
	uint8_t port;	     /* index stored in every path learnt here */
};

/** Checksums of sent frames. */
enum kvr_cksum {
	KVR_CKSUM_SOFTWARE, /* IPv4 header and UDP in software */
	KVR_CKSUM_OFFLOAD,  /* by the NIC; the mbuf carries the request and the pseudo header sum */
	KVR_CKSUM_NONE,	    /* UDP over IPv4 sends 0 (none); IPv4 header and IPv6 UDP in software */
};

/** True if address, UDP port, VLAN and router port are equal (MAC and frame size may differ). */
static inline bool kvr_path_same(const struct kvr_path *a, const struct kvr_path *b)
{
	uint64_t x[3], y[3];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2])) == 0;
}

/** True if the next hop is the same. */
static inline bool kvr_path_same_hop(const struct kvr_path *a, const struct kvr_path *b)
{
	return memcmp(a->mac, b->mac, sizeof(a->mac)) == 0;
}

/** Hash of the peer's identity. @p seed is random per start, as peers choose their addresses. */
static inline uint32_t kvr_path_hash(const struct kvr_path *path, uint64_t seed)
{
	uint64_t w[3];

	memcpy(w, path, sizeof(w));
	return (uint32_t)kvr_mix64(kvr_mix64(kvr_mix64(seed ^ w[0]) ^ w[1]) ^ w[2]);
}

/** Maximum header bytes of kvr_path_write(): Ethernet, two tags, IPv6, UDP. */
#define KVR_PATH_MAX_HEADERS 70u

/** Header bytes of @p path: Ethernet, tags, IP, UDP. */
static inline uint16_t kvr_path_header_len(const struct kvr_path *path)
{
	return (uint16_t)(14 + (path->vlan != 0 ? 4 : 0) + (path->vlan_outer != 0 ? 4 : 0) +
			  (path->family == 4 ? 20 : 40) + 8);
}

/**
 * Turn a payload into a frame: @p m holds exactly the UDP payload (any number of segments); headers
 * and checksums per @p local are prepended to its first segment. IPv4 is sent with "don't
 * fragment", id 0 and TTL 64. The UDP checksum over IPv6 is mandatory, so KVR_CKSUM_NONE still
 * reads the payload there. Packet lcores; touches only @p m. About 40 cycles, plus 100 for each KiB
 * summed in software.
 * @return header length; -ENOBUFS no headroom; -EMSGSIZE payload above path->max_frame or the
 * port's limit; -EAFNOSUPPORT the port has no address of the path's family, or the path is invalid.
 * On error @p m is unchanged and still the caller's.
 */
int kvr_path_write(const struct kvr_local *local, const struct kvr_path *path, struct rte_mbuf *m);

/** "10.0.0.1:7650", "[fd00::1]:7650", with "%vlan100" if tagged. Control thread. */
const char *kvr_path_text(const struct kvr_path *path, char *buf, size_t len);
#define KVR_PATH_TEXT 80

#endif
