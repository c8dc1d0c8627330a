/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ARP, neighbour discovery and echo: turn requests into answers in place, and make requests for
 * kvr_port_resolve(). Only a frame that kvr_pkt_parse() accepted is read here, so lengths have been
 * checked.
 */
#include "kvr_pkt.h"

#include "net_pvt.h"

#include <errno.h>

#define ND_WITH_MAC   (NET_ND_LEN + 8u) /* one link-layer address option */
#define ND_OPT_SOURCE 1u
#define ND_OPT_TARGET 2u

/* Resize the frame to `len` bytes: a request may be padded, or shorter than its answer. */
static int resize_frame(struct rte_mbuf *m, uint32_t len)
{
	if (m->nb_segs != 1)
		return -ENOBUFS;
	if (len > m->pkt_len) {
		if (rte_pktmbuf_append(m, (uint16_t)(len - m->pkt_len)) == NULL)
			return -ENOBUFS;
	} else {
		rte_pktmbuf_trim(m, (uint16_t)(m->pkt_len - len));
	}
	m->ol_flags &= NET_MEMORY_FLAGS;
	return 0;
}

static void turn_l2(const struct kvr_local *local, uint8_t *eth)
{
	memcpy(eth, eth + 6, 6);
	memcpy(eth + 6, local->mac, 6);
}

static int answer_arp(const struct kvr_local *local, const struct kvr_pkt *pkt, struct rte_mbuf *m)
{
	uint8_t *eth = rte_pktmbuf_mtod(m, uint8_t *);
	uint8_t *arp = eth + pkt->off;

	if (arp[7] != 1)
		return -ENOMSG;
	if (resize_frame(m, pkt->off + NET_ARP_LEN) != 0)
		return -ENOBUFS;
	turn_l2(local, eth);
	arp[7] = 2;
	memcpy(arp + 18, arp + 8, 10); /* sender becomes target */
	memcpy(arp + 8, local->mac, 6);
	memcpy(arp + 14, local->ip4, 4);
	return 0;
}

static void swap_bytes(uint8_t *a, uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const uint8_t t = a[i];

		a[i] = b[i];
		b[i] = t;
	}
}

static void put_icmp6_sum(uint8_t *ip, uint32_t len)
{
	uint8_t *icmp = ip + NET_IP6_LEN;
	uint16_t sum;

	memset(icmp + 2, 0, 2);
	sum = (uint16_t)~net_fold(net_pseudo_sum(ip + 8, 16, NET_PROTO_ICMP6, len) +
				  rte_raw_cksum(icmp, len));
	memcpy(icmp + 2, &sum, 2);
}

static int answer_echo(const struct kvr_local *local, const struct kvr_pkt *pkt, struct rte_mbuf *m)
{
	uint8_t *eth = rte_pktmbuf_mtod(m, uint8_t *);
	uint8_t *ip = eth + pkt->off, *icmp = ip + NET_IP4_LEN;
	uint16_t sum;

	if (ip[0] >> 4 == 4 && ip[0] != 0x45)
		return -ENOMSG; /* options: a reply would have to honour source routes */
	if (resize_frame(m, (uint32_t)pkt->off + pkt->len) != 0)
		return -ENOBUFS;
	turn_l2(local, eth);
	if (ip[0] >> 4 == 6) {
		swap_bytes(ip + 8, ip + 24, 16);
		ip[7] = 64;
		ip[NET_IP6_LEN] = NET_ECHO6_REPLY;
		put_icmp6_sum(ip, pkt->len - NET_IP6_LEN);
		return 0;
	}
	swap_bytes(ip + 12, ip + 16, 4);
	ip[8] = 64;
	memset(ip + 10, 0, 2);
	sum = (uint16_t)~rte_raw_cksum(ip, NET_IP4_LEN);
	memcpy(ip + 10, &sum, 2);
	icmp[0] = NET_ECHO4_REPLY;
	memset(icmp + 2, 0, 2);
	sum = (uint16_t)~rte_raw_cksum(icmp, pkt->len - NET_IP4_LEN);
	memcpy(icmp + 2, &sum, 2);
	return 0;
}

/* Answer the sender. A duplicate address probe (from ::) is answered to all nodes. */
static int answer_nd(const struct kvr_local *local, const struct kvr_pkt *pkt, struct rte_mbuf *m)
{
	static const uint8_t all_nodes[16] = {0xff, 2, [15] = 1};
	static const uint8_t all_nodes_mac[6] = {0x33, 0x33, 0, 0, 0, 1};
	uint8_t *eth, *ip, *icmp;
	bool probe;

	eth = rte_pktmbuf_mtod(m, uint8_t *);
	if (eth[pkt->off + NET_IP6_LEN] != NET_ND_SOLICIT)
		return -ENOMSG;
	if (resize_frame(m, pkt->off + NET_IP6_LEN + ND_WITH_MAC) != 0)
		return -ENOBUFS;
	ip = eth + pkt->off;
	icmp = ip + NET_IP6_LEN;
	probe = net_is_zero(ip + 8, 16);
	turn_l2(local, eth);
	if (probe)
		memcpy(eth, all_nodes_mac, 6);
	net_put16(ip + 4, ND_WITH_MAC);
	memcpy(ip + 24, probe ? all_nodes : ip + 8, 16);
	memcpy(ip + 8, local->ip6, 16);
	memset(icmp, 0, ND_WITH_MAC);
	icmp[0] = NET_ND_ADVERT;
	icmp[4] = probe ? 0x20 : 0x60; /* override; solicited */
	memcpy(icmp + 8, local->ip6, 16);
	icmp[24] = ND_OPT_TARGET;
	icmp[25] = 1;
	memcpy(icmp + 26, local->mac, 6);
	put_icmp6_sum(ip, ND_WITH_MAC);
	return 0;
}

int kvr_pkt_answer(const struct kvr_pkt_rules *rules, const struct kvr_pkt *pkt, struct rte_mbuf *m)
{
	switch (pkt->verdict) {
	case KVR_PKT_ARP:
		return answer_arp(&rules->local, pkt, m);
	case KVR_PKT_ND:
		return answer_nd(&rules->local, pkt, m);
	case KVR_PKT_ECHO:
		return answer_echo(&rules->local, pkt, m);
	default:
		return -ENOMSG;
	}
}

static void ask_arp(const struct kvr_local *local, const struct kvr_path *to, uint8_t *arp)
{
	static const uint8_t head[8] = {0, 1, 8, 0, 6, 4, 0, 1};

	memcpy(arp, head, 8);
	memcpy(arp + 8, local->mac, 6);
	memcpy(arp + 14, local->ip4, 4);
	memset(arp + 18, 0, 6);
	memcpy(arp + 24, to->ip + 12, 4);
}

static void ask_nd(const struct kvr_local *local, const struct kvr_path *to, uint8_t *ip)
{
	static const uint8_t head[8] = {0x60, 0, 0, 0, 0, ND_WITH_MAC, NET_PROTO_ICMP6, 255};
	static const uint8_t group[13] = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};
	uint8_t *icmp = ip + NET_IP6_LEN;

	memcpy(ip, head, 8);
	memcpy(ip + 8, local->ip6, 16);
	memcpy(ip + 24, group, 13);
	memcpy(ip + 37, to->ip + 13, 3);
	memset(icmp, 0, ND_WITH_MAC);
	icmp[0] = NET_ND_SOLICIT;
	memcpy(icmp + 8, to->ip, 16);
	icmp[24] = ND_OPT_SOURCE;
	icmp[25] = 1;
	memcpy(icmp + 26, local->mac, 6);
	put_icmp6_sum(ip, ND_WITH_MAC);
}

int kvr_pkt_ask(const struct kvr_local *local, const struct kvr_path *to, struct rte_mbuf *m)
{
	const bool v4 = to->family == 4;
	struct kvr_path all = *to;
	uint8_t *h;

	if (v4 ? net_is_zero(local->ip4, 4) : to->family != 6 || net_is_zero(local->ip6, 16))
		return -EAFNOSUPPORT;
	h = (uint8_t *)rte_pktmbuf_append(
		m, (uint16_t)(kvr_path_header_len(to) - NET_UDP_LEN -
			      (v4 ? NET_IP4_LEN : NET_IP6_LEN) +
			      (v4 ? NET_ARP_LEN : NET_IP6_LEN + ND_WITH_MAC)));
	if (h == NULL)
		return -ENOBUFS;
	if (v4) {
		memset(all.mac, 0xff, 6);
		ask_arp(local, to, h + net_put_l2(h, &all, local->mac, NET_TYPE_ARP));
	} else {
		memset(all.mac, 0x33, 2);
		all.mac[2] = 0xff;
		memcpy(all.mac + 3, to->ip + 13, 3);
		ask_nd(local, to, h + net_put_l2(h, &all, local->mac, NET_TYPE_IP6));
	}
	return 0;
}

bool kvr_pkt_reply_for(const struct kvr_pkt *pkt, const uint8_t *data, struct kvr_path *to)
{
	const uint8_t *h = data + pkt->off;

	if (pkt->verdict == KVR_PKT_ARP && to->family == 4) {
		if (h[7] != 2 || memcmp(h + 14, to->ip + 12, 4) != 0)
			return false;
		memcpy(to->mac, h + 8, 6);
		return true;
	}
	if (pkt->verdict != KVR_PKT_ND || to->family != 6 || h[NET_IP6_LEN] != NET_ND_ADVERT ||
	    memcmp(h + NET_IP6_LEN + 8, to->ip, 16) != 0)
		return false;
	memcpy(to->mac, data + 6, 6); /* default; the option overrides it */
	if (pkt->len >= NET_IP6_LEN + ND_WITH_MAC && h[NET_IP6_LEN + 24] == ND_OPT_TARGET &&
	    h[NET_IP6_LEN + 25] == 1)
		memcpy(to->mac, h + NET_IP6_LEN + 26, 6);
	return true;
}
