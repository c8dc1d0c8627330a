/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parser of received frames. Nearly all frames take the fast path of parse_plain(). All others, and
 * every invalid frame, are judged layer by layer, with a bounds check before each read.
 */
#include "kvr_pkt.h"

#include "net_pvt.h"

#include <rte_branch_prediction.h>

/*
 * Parser state of one frame: `at` is the first unread byte, `end` the end of the innermost length
 * accepted so far. Each step checks at + n <= end before it reads n bytes.
 */
struct cursor {
	const struct kvr_pkt_rules *r;
	const uint8_t *data;
	uint32_t at, end, hw;
	bool group; /* destination is a group MAC */
	struct kvr_pkt *out;
};

static inline uint32_t bytes_left(const struct cursor *cur)
{
	return cur->end - cur->at;
}

static bool one_of(const struct kvr_prefix list[], uint32_t n, const uint8_t ip[16])
{
	uint64_t a[2];

	if (n == 0)
		return true;
	memcpy(a, ip, sizeof(a));
	/* At most 64 prefixes: scanning 2 KiB is faster than the dependent loads of a trie. */
	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_prefix *p = &list[i];

		if ((((a[0] & p->mask[0]) ^ p->addr[0]) | ((a[1] & p->mask[1]) ^ p->addr[1])) == 0)
			return true;
	}
	return false;
}

static bool is_allowed(const struct kvr_pkt_rules *rules, const uint8_t ip[16])
{
	return one_of(rules->allow, rules->n_allow, ip);
}

bool kvr_pkt_agent_allowed(const struct kvr_pkt_rules *rules, const uint8_t ip[16])
{
	return one_of(rules->agents, rules->n_agents, ip);
}

/* 0xffff if the checksum over pseudo header and `len` bytes is correct. */
static uint16_t l4_sum(const struct cursor *cur, const uint8_t *addr, uint32_t alen, uint32_t proto,
		       uint32_t len)
{
	return net_fold(net_pseudo_sum(addr, alen, proto, len) +
			rte_raw_cksum(cur->data + cur->at, len));
}

/*
 * True for a frame of this host that was never on a wire (veth, virtio): its checksum was left to a
 * device and contains only the pseudo header's sum.
 */
static bool is_partial(const struct cursor *cur, const uint8_t *addr, uint32_t alen, uint32_t len)
{
	uint16_t sum;

	memcpy(&sum, cur->data + cur->at + 6, sizeof(sum));
	return sum == net_fold(net_pseudo_sum(addr, alen, NET_PROTO_UDP, len));
}

static enum kvr_pkt_verdict judge_udp(struct cursor *cur, const uint8_t *addr, uint32_t alen)
{
	const uint8_t *h = cur->data + cur->at;
	uint32_t len, sum;

	if (bytes_left(cur) < NET_UDP_LEN)
		return KVR_PKT_BAD_UDP;
	len = net_get16(h + 4);
	if (len < NET_UDP_LEN || len > bytes_left(cur))
		return KVR_PKT_BAD_UDP;
	if (net_get16(h + 2) != cur->r->local.udp_port)
		return KVR_PKT_OTHER_PORT;
	cur->out->path.udp_port = net_get16(h);
	if (cur->out->path.udp_port == 0)
		return KVR_PKT_BAD_SOURCE;
	if (cur->hw & KVR_PKT_HW_L4_BAD)
		return KVR_PKT_BAD_UDP_SUM;
	if (cur->r->verify_udp && !(cur->hw & KVR_PKT_HW_L4_GOOD)) {
		sum = net_get16(h + 6);
		if (sum == 0 && alen == 16)
			return KVR_PKT_BAD_UDP;
		if (sum != 0 && l4_sum(cur, addr, alen, NET_PROTO_UDP, len) != 0xffff &&
		    !(cur->r->half_udp && is_partial(cur, addr, alen, len)))
			return KVR_PKT_BAD_UDP_SUM;
	}
	if (!is_allowed(cur->r, cur->out->path.ip))
		return KVR_PKT_DENIED;
	cur->out->off = (uint16_t)(cur->at + NET_UDP_LEN);
	cur->out->len = (uint16_t)(len - NET_UDP_LEN);
	return KVR_PKT_UDP;
}

static enum kvr_pkt_verdict judge_icmp4(struct cursor *cur)
{
	const uint8_t *h = cur->data + cur->at;

	if (bytes_left(cur) < NET_ICMP_LEN)
		return KVR_PKT_TRUNCATED;
	if (h[0] != NET_ECHO4_REQUEST || h[1] != 0)
		return KVR_PKT_OTHER_PROTO;
	if (rte_raw_cksum(h, bytes_left(cur)) != 0xffff)
		return KVR_PKT_BAD_UDP_SUM;
	return is_allowed(cur->r, cur->out->path.ip) ? KVR_PKT_ECHO : KVR_PKT_DENIED;
}

/*
 * Sources that cannot be answered: "this" network, loopback, multicast and above, our own address.
 */
static bool bad_source4(const struct kvr_local *local, const uint8_t ip[4])
{
	return ip[0] == 0 || ip[0] == 127 || ip[0] >= 224 || memcmp(ip, local->ip4, 4) == 0;
}

static enum kvr_pkt_verdict judge_ip4(struct cursor *cur)
{
	const struct kvr_local *local = &cur->r->local;
	const uint8_t *h = cur->data + cur->at;
	uint32_t header, total;

	if (bytes_left(cur) < NET_IP4_LEN)
		return KVR_PKT_TRUNCATED;
	header = (h[0] & 0xfu) * 4;
	total = net_get16(h + 2);
	if (h[0] >> 4 != 4 || header < NET_IP4_LEN || total < header)
		return KVR_PKT_BAD_IP;
	if (total > bytes_left(cur))
		return KVR_PKT_TRUNCATED;
	cur->end = cur->at + total;
	cur->out->len = (uint16_t)total;
	if (cur->hw & KVR_PKT_HW_IP_BAD)
		return KVR_PKT_BAD_IP_SUM;
	if (!(cur->hw & KVR_PKT_HW_IP_GOOD) &&
	    (likely(header == NET_IP4_LEN) ? net_ip4_sum(h) : rte_raw_cksum(h, header)) != 0xffff)
		return KVR_PKT_BAD_IP_SUM;
	if (memcmp(h + 16, local->ip4, 4) != 0 || net_is_zero4(local->ip4))
		return KVR_PKT_OTHER_ADDR;
	if ((net_get16(h + 6) & 0x3fff) != 0)
		return KVR_PKT_FRAGMENT;
	if (bad_source4(local, h + 12))
		return KVR_PKT_BAD_SOURCE;
	net_map4(cur->out->path.ip, h + 12);
	cur->out->path.family = 4;
	cur->out->path.max_frame = local->max_frame4;
	cur->at += header;
	if (h[9] == NET_PROTO_UDP)
		return judge_udp(cur, h + 12, 4);
	if (h[9] == NET_PROTO_ICMP)
		return judge_icmp4(cur);
	return KVR_PKT_OTHER_PROTO;
}

/* RFC 4861: hop limit 255 proves the sender is on this link. `h` is the IPv6 header. */
static enum kvr_pkt_verdict judge_nd(struct cursor *cur, const uint8_t *h, const uint8_t *icmp)
{
	const struct kvr_local *local = &cur->r->local;

	if (bytes_left(cur) < NET_ND_LEN)
		return KVR_PKT_TRUNCATED;
	if (h[7] != 255 || icmp[1] != 0)
		return KVR_PKT_OTHER_PROTO;
	if (l4_sum(cur, h + 8, 16, NET_PROTO_ICMP6, bytes_left(cur)) != 0xffff)
		return KVR_PKT_BAD_UDP_SUM;
	if (icmp[0] == NET_ND_SOLICIT && memcmp(icmp + 8, local->ip6, 16) != 0)
		return KVR_PKT_OTHER_ADDR;
	return KVR_PKT_ND;
}

static enum kvr_pkt_verdict judge_icmp6(struct cursor *cur, const uint8_t *h, bool unicast)
{
	const uint8_t *icmp = cur->data + cur->at;

	if (bytes_left(cur) < NET_ICMP_LEN)
		return KVR_PKT_TRUNCATED;
	if (icmp[0] == NET_ND_SOLICIT || icmp[0] == NET_ND_ADVERT)
		return judge_nd(cur, h, icmp);
	if (icmp[0] != NET_ECHO6_REQUEST || icmp[1] != 0)
		return KVR_PKT_OTHER_PROTO;
	if (!unicast)
		return KVR_PKT_OTHER_ADDR;
	if (net_is_zero(cur->out->path.ip, 16))
		return KVR_PKT_BAD_SOURCE;
	if (l4_sum(cur, h + 8, 16, NET_PROTO_ICMP6, bytes_left(cur)) != 0xffff)
		return KVR_PKT_BAD_UDP_SUM;
	return is_allowed(cur->r, cur->out->path.ip) ? KVR_PKT_ECHO : KVR_PKT_DENIED;
}

/*
 * Multicast, loopback, our own address, and IPv4-mapped addresses, which would impersonate IPv4
 * peers. The unspecified address is valid for neighbour discovery only, which checks it itself.
 */
static bool bad_source6(const struct kvr_local *local, const uint8_t ip[16])
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return ip[0] == 0xff || memcmp(ip, mapped, 12) == 0 || memcmp(ip, local->ip6, 16) == 0 ||
	       (net_is_zero(ip, 15) && ip[15] == 1);
}

static bool is_extension(uint8_t next)
{
	return next == 0 || next == 43 || next == 50 || next == 51 || next == 60 || next == 135 ||
	       next == 139 || next == 140;
}

static enum kvr_pkt_verdict judge_ip6(struct cursor *cur)
{
	const struct kvr_local *local = &cur->r->local;
	const uint8_t *h = cur->data + cur->at;
	uint32_t payload;
	bool unicast;

	if (bytes_left(cur) < NET_IP6_LEN)
		return KVR_PKT_TRUNCATED;
	payload = net_get16(h + 4);
	if (h[0] >> 4 != 6 || payload == 0) /* 0: a jumbogram or empty */
		return KVR_PKT_BAD_IP;
	if (payload > bytes_left(cur) - NET_IP6_LEN)
		return KVR_PKT_TRUNCATED;
	cur->end = cur->at + NET_IP6_LEN + payload;
	cur->out->len = (uint16_t)RTE_MIN(NET_IP6_LEN + payload, (uint32_t)UINT16_MAX);
	unicast = memcmp(h + 24, local->ip6, 16) == 0;
	if (net_is_zero(local->ip6, 16) || (!unicast && !net_is_solicited_node(h + 24, local->ip6)))
		return KVR_PKT_OTHER_ADDR;
	if (bad_source6(local, h + 8))
		return KVR_PKT_BAD_SOURCE;
	memcpy(cur->out->path.ip, h + 8, 16);
	cur->out->path.family = 6;
	cur->out->path.max_frame = local->max_frame6;
	cur->at += NET_IP6_LEN;
	if (h[6] == NET_PROTO_ICMP6)
		return judge_icmp6(cur, h, unicast);
	if (!unicast || cur->group)
		return KVR_PKT_OTHER_ADDR;
	if (h[6] == NET_PROTO_UDP)
		return net_is_zero(h + 8, 16) ? KVR_PKT_BAD_SOURCE : judge_udp(cur, h + 8, 16);
	if (h[6] == 44)
		return KVR_PKT_FRAGMENT;
	return is_extension(h[6]) ? KVR_PKT_IP6_EXT : KVR_PKT_OTHER_PROTO;
}

static enum kvr_pkt_verdict judge_arp(struct cursor *cur)
{
	static const uint8_t ethernet_ip4[6] = {0, 1, 8, 0, 6, 4};
	const uint8_t *h = cur->data + cur->at;

	if (bytes_left(cur) < NET_ARP_LEN)
		return KVR_PKT_TRUNCATED;
	if (memcmp(h, ethernet_ip4, 6) != 0 || h[6] != 0 || (h[7] != 1 && h[7] != 2))
		return KVR_PKT_OTHER_PROTO;
	if (net_is_zero4(cur->r->local.ip4) || memcmp(h + 24, cur->r->local.ip4, 4) != 0)
		return KVR_PKT_OTHER_ADDR;
	cur->out->len = NET_ARP_LEN;
	return KVR_PKT_ARP;
}

/* Read the VLAN tags. @return false for an unsupported stack of tags. */
static bool read_tags(struct cursor *cur, uint32_t *type)
{
	struct kvr_path *path = &cur->out->path;
	uint32_t outer = *type, tci;

	if (outer != NET_TYPE_TAG && outer != NET_TYPE_AD)
		return true;
	tci = net_get16(cur->data + cur->at);
	*type = net_get16(cur->data + cur->at + 2);
	cur->at += NET_TAG_LEN;
	if (*type == NET_TYPE_TAG && bytes_left(cur) >= NET_TAG_LEN) {
		if ((tci & 0xfff) != 0)
			path->vlan_outer =
				(uint16_t)((tci & 0xfff) |
					   (outer == NET_TYPE_TAG ? KVR_PATH_OUTER_8100 : 0));
		tci = net_get16(cur->data + cur->at);
		*type = net_get16(cur->data + cur->at + 2);
		cur->at += NET_TAG_LEN;
	} else if (outer == NET_TYPE_AD) {
		return false; /* a single service tag */
	}
	path->vlan = (uint16_t)(tci & 0xfff);
	/* An outer id with a priority tag inside is indistinguishable from a single tag. */
	return path->vlan != 0 || path->vlan_outer == 0;
}

static enum kvr_pkt_verdict judge_frame(struct cursor *cur)
{
	const struct kvr_local *local = &cur->r->local;
	struct kvr_pkt *out = cur->out;
	uint32_t type;

	if (cur->end < NET_ETH_LEN)
		return KVR_PKT_TRUNCATED;
	cur->group = cur->data[0] & 1;
	if (!cur->group && memcmp(cur->data, local->mac, 6) != 0)
		return KVR_PKT_OTHER_MAC;
	memcpy(out->path.mac, cur->data + 6, 6);
	if (out->path.mac[0] & 1)
		return KVR_PKT_BAD_SOURCE;
	type = net_get16(cur->data + 12);
	cur->at = NET_ETH_LEN;
	if ((type == NET_TYPE_TAG || type == NET_TYPE_AD) && bytes_left(cur) < NET_TAG_LEN)
		return KVR_PKT_TRUNCATED;
	if (!read_tags(cur, &type))
		return KVR_PKT_OTHER_PROTO;
	if (out->path.vlan == 0xfff || (cur->r->vlan != 0 && out->path.vlan != cur->r->vlan))
		return KVR_PKT_OTHER_VLAN;
	out->l2_len = (uint8_t)cur->at;
	out->off = (uint16_t)cur->at;
	out->path.port = local->port;
	if (type == NET_TYPE_IP4)
		return cur->group ? KVR_PKT_OTHER_MAC : judge_ip4(cur);
	if (type == NET_TYPE_IP6)
		return judge_ip6(cur);
	return type == NET_TYPE_ARP ? judge_arp(cur) : KVR_PKT_OTHER_PROTO;
}

static enum kvr_pkt_verdict judge_any(const struct kvr_pkt_rules *rules, const uint8_t *data,
				      uint32_t len, uint32_t hw, struct kvr_pkt *out)
{
	/* Offsets have 16 bits; a larger frame cannot be one IP packet plus headers. */
	struct cursor c = {
		.r = rules, .data = data, .end = RTE_MIN(len, 65535u), .hw = hw, .out = out};
	enum kvr_pkt_verdict v;

	memset(out, 0, sizeof(*out));
	v = judge_frame(&c);
	out->verdict = (uint8_t)v;
	return v;
}

#define PLAIN_LEN (NET_ETH_LEN + NET_IP4_LEN + NET_UDP_LEN)

/*
 * Fast path: no tag, IPv4 without options, UDP, nothing to verify but the header. @return false if
 * the frame is of another kind or invalid; judge_frame() decides. Nothing has been written then.
 */
static inline bool parse_plain(const struct kvr_pkt_rules *rules, const uint8_t *h, uint32_t len,
			       uint32_t hw, struct kvr_pkt *out)
{
	const struct kvr_local *local = &rules->local;
	const uint8_t *ip = h + NET_ETH_LEN, *udp = ip + NET_IP4_LEN;
	uint32_t total, payload, mine, to;

	if (len < PLAIN_LEN || len > UINT16_MAX || rules->vlan != 0 || rules->n_allow != 0 ||
	    (hw & (KVR_PKT_HW_IP_BAD | KVR_PKT_HW_L4_BAD)) != 0)
		return false;
	total = net_get16(ip + 2);
	payload = net_get16(udp + 4);
	memcpy(&mine, local->ip4, 4);
	memcpy(&to, ip + 16, 4);
	/*
	 * Both MAC addresses are unicast and the first is ours; version, header length, protocol;
	 * no fragment; lengths; our address and port.
	 */
	if (((h[0] | h[6]) & 1) != 0 || memcmp(h, local->mac, 6) != 0 ||
	    net_get16(h + 12) != NET_TYPE_IP4 || ip[0] != 0x45 || ip[9] != NET_PROTO_UDP ||
	    (net_get16(ip + 6) & 0x3fff) != 0 || total > len - NET_ETH_LEN ||
	    payload < NET_UDP_LEN || payload + NET_IP4_LEN > total || mine == 0 || mine != to ||
	    net_get16(udp + 2) != local->udp_port || net_get16(udp) == 0 ||
	    bad_source4(local, ip + 12))
		return false;
	if (!(hw & KVR_PKT_HW_IP_GOOD) && net_ip4_sum(ip) != 0xffff)
		return false;
	if (rules->verify_udp && !(hw & KVR_PKT_HW_L4_GOOD) && net_get16(udp + 6) != 0)
		return false;
	net_map4(out->path.ip, ip + 12);
	out->path.udp_port = net_get16(udp);
	out->path.vlan = 0;
	out->path.vlan_outer = 0;
	out->path.port = local->port;
	out->path.family = 4;
	memcpy(out->path.mac, h + 6, 6);
	out->path.max_frame = local->max_frame4;
	out->off = PLAIN_LEN;
	out->len = (uint16_t)(payload - NET_UDP_LEN);
	out->verdict = KVR_PKT_UDP;
	out->l2_len = NET_ETH_LEN;
	out->pad = 0;
	return true;
}

enum kvr_pkt_verdict kvr_pkt_parse(const struct kvr_pkt_rules *rules, const uint8_t *data,
				   uint32_t len, uint32_t hw, struct kvr_pkt *out)
{
	if (likely(parse_plain(rules, data, len, hw, out)))
		return KVR_PKT_UDP;
	return judge_any(rules, data, len, hw, out);
}
