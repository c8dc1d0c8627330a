/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Select the router's frames on a kernel interface: UDP to its addresses and port goes to the
 * AF_XDP socket of the frame's queue; all other frames (ssh, ARP, neighbour discovery, ping, other
 * ports) stay with the kernel. Special cases:
 *
 * - IP fragments: a first fragment to the router's port is dropped, as the protocol has fragments
 *   of its own. Later fragments do not contain the port and go to the kernel, which never completes
 *   them.
 *
 * - VLAN: up to two tags are read. With [port] vlan only this id is accepted, else any. A tag
 *   stripped by the device is not seen here.
 *
 * - IPv6 extension headers: up to MAX_EXT are read. A frame to the router's port with such headers
 *   is dropped, others go to the kernel, and so do frames with more headers.
 *
 * - Malformed: a frame that cannot be parsed up to its port goes to the kernel; all other checks
 *   are done by ingress.
 *
 * - Allow-list and rate apply to the router's frames only.
 *
 * Cost of a frame beside the redirect: one array look-up, and one trie or hash look-up if there is
 * a list or a rate.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "kvroute_xdp.h"

#define MAX_EXT	  4
#define CAS_TRIES 4 /* attempts against other CPUs that update the same source */

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, KVR_XDP_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kvr_xdp_conf);
} conf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, KVR_XDP_ALLOW);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct kvr_xdp_prefix);
	__type(value, __u32);
} allow SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, KVR_XDP_SOURCES);
	__type(key, struct kvr_xdp_ip);
	__type(value, __u64);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KVR_XDP_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct vlan_tag {
	__be16 tci, type;
};

/* Parser state of a frame. */
struct frame {
	void *data, *end;
	struct kvr_xdp_ip src;
	__u32 at; /* offset of the UDP header */
	bool fragment, ext;
};

static __always_inline int count_frame(__u32 reason, int action)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &reason);

	if (n)
		*n += 1;
	return action;
}

static __always_inline bool same16(const void *a, const void *b)
{
	const __u32 *x = a, *y = b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

/* Read the type after the tags. @return false if the VLAN is not accepted. */
static __always_inline bool read_tags(struct frame *f, const struct kvr_xdp_conf *c, __be16 *type)
{
	__u32 vlan = 0;

	for (int i = 0; i < 2; i++) {
		const struct vlan_tag *t = f->data + f->at;

		if (*type != bpf_htons(ETH_P_8021Q) && *type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(t + 1) > f->end)
			return false;
		vlan = bpf_ntohs(t->tci) & 0xfff;
		*type = t->type;
		f->at += sizeof(*t);
	}
	return c->vlan == 0 || vlan == c->vlan;
}

/* True if the packet is UDP, or a first fragment of it, to the router. */
static __always_inline bool read_ip4(struct frame *f, const struct kvr_xdp_conf *c)
{
	const struct iphdr *h = f->data + f->at;

	if ((void *)(h + 1) > f->end || !c->has4 || h->ihl < 5 || h->protocol != IPPROTO_UDP ||
	    h->daddr != *(const __u32 *)c->ip4)
		return false;
	if (h->frag_off & bpf_htons(0x1fff))
		return false; /* contains no port */
	f->fragment = h->frag_off & bpf_htons(0x2000);
	f->src.b[10] = 0xff;
	f->src.b[11] = 0xff;
	__builtin_memcpy(f->src.b + 12, &h->saddr, 4);
	f->at += (__u32)h->ihl * 4;
	return true;
}

static __always_inline bool read_ip6(struct frame *f, const struct kvr_xdp_conf *c)
{
	const struct ipv6hdr *h = f->data + f->at;
	__u8 next;

	if ((void *)(h + 1) > f->end || !c->has6 || !same16(&h->daddr, c->ip6))
		return false;
	__builtin_memcpy(f->src.b, &h->saddr, 16);
	next = h->nexthdr;
	f->at += sizeof(*h);
	for (int i = 0; i < MAX_EXT && next != IPPROTO_UDP; i++) {
		const __u8 *x = f->data + f->at;

		if (f->at > 512 || (void *)(x + 8) > f->end)
			return false;
		if (next == IPPROTO_FRAGMENT) {
			if ((x[2] << 8 | x[3]) & 0xfff8)
				return false; /* contains no port */
			f->fragment = true;
			f->at += 8;
		} else if (next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING ||
			   next == IPPROTO_DSTOPTS || next == 135 || next == 139 || next == 140) {
			f->ext = true;
			f->at += (__u32)(x[1] + 1) * 8;
		} else if (next == IPPROTO_AH) {
			f->ext = true;
			f->at += (__u32)(x[1] + 2) * 4;
		} else {
			return false;
		}
		next = x[0];
	}
	return next == IPPROTO_UDP;
}

/*
 * GCRA (ITU-T I.371): each source has the time at which its next frame is due at its rate. Each
 * frame advances it by one gap. If the time is ahead of the clock by more than a burst, the frame
 * is dropped. If the time is even further ahead, it stems from a slower rate and is reset. The
 * clock is read after the time, so that a concurrent update by another CPU is not mistaken for that
 * case.
 */
static __always_inline bool within_rate(const struct kvr_xdp_conf *c, struct kvr_xdp_ip *src,
					bool ip6)
{
	__u64 *due, fresh;

	if (ip6) /* a /64 is one source */
		__builtin_memset(src->b + 8, 0, 8);
	due = bpf_map_lookup_elem(&sources, src);
	if (!due) {
		fresh = bpf_ktime_get_ns() + c->gap_ns;
		bpf_map_update_elem(&sources, src, &fresh, BPF_NOEXIST);
		return true;
	}
	for (int i = 0; i < CAS_TRIES; i++) {
		const __u64 old = *(volatile __u64 *)due, now = bpf_ktime_get_ns();
		__u64 ahead = old > now ? old - now : 0;

		if (ahead > c->burst_ns + c->gap_ns)
			ahead = 0;
		if (ahead > c->burst_ns)
			return false;
		if (__sync_val_compare_and_swap(due, old, now + ahead + c->gap_ns) == old)
			return true;
	}
	return true;
}

static __always_inline bool is_allowed(const struct kvr_xdp_ip *src)
{
	struct kvr_xdp_prefix key = {.len = 128, .ip = *src};

	return bpf_map_lookup_elem(&allow, &key) != NULL;
}

SEC("xdp")
int kvroute_xdp(struct xdp_md *ctx)
{
	struct frame f = {.data = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end};
	const __u32 zero = 0;
	const struct kvr_xdp_conf *c = bpf_map_lookup_elem(&conf, &zero);
	const struct ethhdr *eth = f.data;
	const struct udphdr *udp;
	__u32 queue = ctx->rx_queue_index;
	__be16 type;
	bool ours = false, ip6;

	if (!c || !c->on)
		return count_frame(KVR_XDP_OFF, XDP_PASS);
	if ((void *)(eth + 1) > f.end)
		return count_frame(KVR_XDP_KERNEL, XDP_PASS);
	type = eth->h_proto;
	f.at = sizeof(*eth);
	if (!read_tags(&f, c, &type))
		return count_frame(KVR_XDP_KERNEL, XDP_PASS);
	ip6 = type == bpf_htons(ETH_P_IPV6);
	if (type == bpf_htons(ETH_P_IP))
		ours = read_ip4(&f, c);
	else if (ip6)
		ours = read_ip6(&f, c);
	if (!ours || f.at > 2048)
		return count_frame(KVR_XDP_KERNEL, XDP_PASS);
	udp = f.data + f.at;
	if ((void *)(udp + 1) > f.end || udp->dest != c->udp_port)
		return count_frame(KVR_XDP_KERNEL, XDP_PASS);
	if (f.fragment)
		return count_frame(KVR_XDP_FRAGMENT, XDP_DROP);
	if (f.ext)
		return count_frame(KVR_XDP_IP6_EXT, XDP_DROP);
	if (c->restricted && !is_allowed(&f.src))
		return count_frame(KVR_XDP_DENIED, XDP_DROP);
	if (c->gap_ns && !within_rate(c, &f.src, ip6))
		return count_frame(KVR_XDP_LIMITED, XDP_DROP);
	if (!bpf_map_lookup_elem(&xsks_map, &queue))
		return count_frame(KVR_XDP_NO_SOCKET, XDP_DROP);
	count_frame(KVR_XDP_REDIRECTED, 0);
	return (int)bpf_redirect_map(&xsks_map, queue, XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
