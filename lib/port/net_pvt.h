/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PORT_NET_PVT_H
#define PORT_NET_PVT_H

/**
 * @file
 * Protocol headers as bytes: protocol numbers and access without alignment. The structs of
 * rte_ether.h require even addresses, which tests and some drivers do not provide.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ip.h>

#include "kvr_path.h"

#define NET_ETH_LEN  14u
#define NET_TAG_LEN  4u
#define NET_IP4_LEN  20u
#define NET_IP6_LEN  40u
#define NET_UDP_LEN  8u
#define NET_ARP_LEN  28u
#define NET_ICMP_LEN 8u
#define NET_ND_LEN   24u /* NS or NA without options */

#define NET_TYPE_IP4 0x0800u
#define NET_TYPE_ARP 0x0806u
#define NET_TYPE_TAG 0x8100u
#define NET_TYPE_IP6 0x86ddu
#define NET_TYPE_AD  0x88a8u

#define NET_PROTO_ICMP	1u
#define NET_PROTO_UDP	17u
#define NET_PROTO_ICMP6 58u

#define NET_ECHO4_REQUEST 8u
#define NET_ECHO4_REPLY	  0u
#define NET_ECHO6_REQUEST 128u
#define NET_ECHO6_REPLY	  129u
#define NET_ND_SOLICIT	  135u
#define NET_ND_ADVERT	  136u

static inline uint16_t net_get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline void net_put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* Write an IPv4-mapped address. */
static inline void net_map4(uint8_t ip[16], const uint8_t ip4[4])
{
	memset(ip, 0, 10);
	memset(ip + 10, 0xff, 2);
	memcpy(ip + 12, ip4, 4);
}

/*
 * One's complement sum (folded, in memory byte order) of the pseudo header for `len` bytes of
 * `proto`; both addresses of `alen` bytes stand at `addr`.
 */
static inline uint32_t net_pseudo_sum(const uint8_t *addr, uint32_t alen, uint32_t proto,
				      uint32_t len)
{
	const uint16_t tail[2] = {rte_cpu_to_be_16((uint16_t)len),
				  rte_cpu_to_be_16((uint16_t)proto)};

	return (uint32_t)rte_raw_cksum(addr, 2 * alen) + tail[0] + tail[1];
}

static inline uint16_t net_fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* Solicited-node multicast address of RFC 4291 and its MAC. */
static inline bool net_is_solicited_node(const uint8_t dst[16], const uint8_t ip6[16])
{
	static const uint8_t head[13] = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};

	return memcmp(dst, head, 13) == 0 && memcmp(dst + 13, ip6 + 13, 3) == 0;
}

static inline bool net_is_zero(const uint8_t *p, size_t n)
{
	uint8_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= p[i];
	return any == 0;
}

/* The same for an IPv4 address, on the path of every frame. */
static inline bool net_is_zero4(const uint8_t ip4[4])
{
	uint32_t v;

	memcpy(&v, ip4, sizeof(v));
	return v == 0;
}

/* rte_raw_cksum() of an IPv4 header without options, as five words instead of a byte loop. */
static inline uint16_t net_ip4_sum(const uint8_t h[NET_IP4_LEN])
{
	uint32_t w[NET_IP4_LEN / 4];
	uint64_t sum;

	memcpy(w, h, sizeof(w));
	sum = (uint64_t)w[0] + w[1] + w[2] + w[3] + w[4];
	sum = (sum & UINT32_MAX) + (sum >> 32); /* at most 33 bits */
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* Write Ethernet header and tags. @return their length. */
static inline uint32_t net_put_l2(uint8_t *h, const struct kvr_path *path, const uint8_t src[6],
				  uint32_t type)
{
	uint32_t n = 12;

	memcpy(h, path->mac, 6);
	memcpy(h + 6, src, 6);
	if (path->vlan_outer != 0) {
		net_put16(h + n,
			  path->vlan_outer & KVR_PATH_OUTER_8100 ? NET_TYPE_TAG : NET_TYPE_AD);
		net_put16(h + n + 2, path->vlan_outer & 0xfffu);
		n += NET_TAG_LEN;
	}
	if (path->vlan != 0) {
		net_put16(h + n, NET_TYPE_TAG);
		net_put16(h + n + 2, path->vlan);
		n += NET_TAG_LEN;
	}
	net_put16(h + n, type);
	return n + 2;
}

/* Flags that describe the memory of an mbuf rather than its packet; all others are cleared. */
#define NET_MEMORY_FLAGS (RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL)

#endif
