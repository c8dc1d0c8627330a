/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVROUTE_XDP_H
#define KVROUTE_XDP_H

/*
 * Layout of the maps shared by the XDP program and the router. Both compilers read this file.
 *
 *   xsks_map  queue -> AF_XDP socket              filled by DPDK's driver
 *   conf      [0] -> struct kvr_xdp_conf          control thread writes, program reads
 *   allow     source prefix -> 1 (LPM trie)       control thread writes, program reads
 *   sources   source -> time (LRU hash)           program only: rate limits
 *   counts    enum kvr_xdp_count -> u64 per CPU   program counts, control thread reads
 *
 * After loading, conf is zero and every frame goes to the kernel.
 */

#ifdef __bpf__
#include <linux/types.h>
typedef __u8 kvr_u8;
typedef __u16 kvr_u16;
typedef __u32 kvr_u32;
typedef __u64 kvr_u64;
#else
#include <stdint.h>
typedef uint8_t kvr_u8;
typedef uint16_t kvr_u16;
typedef uint32_t kvr_u32;
typedef uint64_t kvr_u64;
#endif

#define KVR_XDP_QUEUES	64    /* KVR_PORT_MAX_QUEUES */
#define KVR_XDP_ALLOW	128   /* twice KVR_PKT_MAX_ALLOW: old and new list during a change */
#define KVR_XDP_SOURCES 65536 /* tracked for their rate; the least recent are evicted */

/* Every frame is counted once, by its result. */
#define KVR_XDP_COUNT_LIST(X)                                                                      \
	X(KVR_XDP_REDIRECTED, redirected, COUNT, "frames", "to the sockets of the polling lcores") \
	X(KVR_XDP_KERNEL, kernel, COUNT, "frames", "not for the router: passed to the kernel")     \
	X(KVR_XDP_OFF, off, COUNT, "frames", "passed to the kernel: redirection is off")           \
	X(KVR_XDP_FRAGMENT, fragment, COUNT, "frames", "IP fragments to the router's port")        \
	X(KVR_XDP_IP6_EXT, ip6_ext, COUNT, "frames",                                               \
	  "IPv6 extension headers before the router's port")                                       \
	X(KVR_XDP_DENIED, denied, COUNT, "frames", "source not in the allow-list")                 \
	X(KVR_XDP_LIMITED, limited, COUNT, "frames", "source above its rate")                      \
	X(KVR_XDP_NO_SOCKET, no_socket, COUNT, "frames", "on a queue that no lcore polls")

#define KVR_XDP_COUNT_ENUM(id, name, kind, unit, help) id,
enum kvr_xdp_count { KVR_XDP_COUNT_LIST(KVR_XDP_COUNT_ENUM) KVR_XDP_COUNTS };

/* Key of a source and of its prefixes; an IPv4 address is IPv4-mapped. */
struct kvr_xdp_ip {
	kvr_u8 b[16];
};

struct kvr_xdp_prefix {
	kvr_u32 len; /* bits, 0..128; plus 96 for IPv4 */
	struct kvr_xdp_ip ip;
};

struct kvr_xdp_conf {
	kvr_u32 on;	  /* 1 = redirect; 0 = every frame to the kernel */
	kvr_u16 udp_port; /* network order */
	kvr_u16 vlan;	  /* required id; 0 = untagged and any */
	kvr_u8 has4, has6, restricted /* the allow-list applies */, pad;
	kvr_u8 ip4[4], ip6[16];
	kvr_u64 gap_ns;	  /* between two frames of a source at its rate; 0 = no limit */
	kvr_u64 burst_ns; /* how far a source may exceed its rate */
};

#endif
