/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Headers of sent frames. Nearly all frames take the fast path (IPv4, no tag, no offload), which
 * writes 42 bytes with word stores.
 */
#include "kvr_path.h"

#include "net_pvt.h"

#include <errno.h>

#include <rte_branch_prediction.h>

static inline void put_word(uint8_t *h, uint32_t v)
{
	memcpy(h, &v, sizeof(v));
}

static inline void put_half(uint8_t *h, uint16_t v)
{
	memcpy(h, &v, sizeof(v));
}

static void put_ip4(uint8_t *h, const struct kvr_local *local, const struct kvr_path *path,
		    uint32_t total)
{
	/*
	 * Version and length, DF, TTL 64, UDP. Id 0 is valid for packets that are never fragmented.
	 */
	static const uint8_t fixed[10] = {0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, NET_PROTO_UDP};

	memcpy(h, fixed, 10);
	net_put16(h + 2, total);
	memset(h + 10, 0, 2);
	memcpy(h + 12, local->ip4, 4);
	memcpy(h + 16, path->ip + 12, 4);
}

static void put_ip6(uint8_t *h, const struct kvr_local *local, const struct kvr_path *path,
		    uint32_t len)
{
	static const uint8_t fixed[8] = {0x60, 0, 0, 0, 0, 0, NET_PROTO_UDP, 64};

	memcpy(h, fixed, 8);
	net_put16(h + 4, len);
	memcpy(h + 8, local->ip6, 16);
	memcpy(h + 24, path->ip, 16);
}

/*
 * Sum over the segments from byte `off` of the first to the end. Not rte_raw_cksum_mbuf(), which in
 * DPDK 22.11 loses carries after a segment of odd length.
 */
static uint32_t sum_segments(const struct rte_mbuf *m, uint32_t off)
{
	uint32_t sum = 0;
	bool odd = false;

	for (; m != NULL; m = m->next) {
		const uint32_t n = m->data_len - off;
		const uint16_t part =
			rte_raw_cksum(rte_pktmbuf_mtod_offset(m, const uint8_t *, off), n);

		sum += odd ? rte_bswap16(part) : part;
		odd ^= n & 1;
		off = 0;
	}
	return net_fold(sum);
}

static uint16_t udp_cksum(const struct rte_mbuf *m, uint32_t udp_off, const uint8_t *addr,
			  uint32_t alen, uint32_t len)
{
	const uint16_t sum = (uint16_t)~net_fold(net_pseudo_sum(addr, alen, NET_PROTO_UDP, len) +
						 sum_segments(m, udp_off));

	return sum != 0 ? sum : 0xffff;
}

static void put_checksums(const struct kvr_local *local, struct rte_mbuf *m, uint32_t l2,
			  uint32_t l3, uint32_t udp_len)
{
	uint8_t *ip = rte_pktmbuf_mtod_offset(m, uint8_t *, l2);
	uint8_t *udp = ip + l3;
	const bool v4 = l3 == NET_IP4_LEN;
	const uint8_t *addr = v4 ? ip + 12 : ip + 8;
	const uint32_t alen = v4 ? 4 : 16;
	uint16_t sum;

	if (local->tx_cksum == KVR_CKSUM_OFFLOAD) {
		m->l2_len = l2 & 0x7f;
		m->l3_len = l3 & 0x1ff;
		m->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
		m->ol_flags |=
			v4 ? RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM : RTE_MBUF_F_TX_IPV6;
		/* The NIC adds the payload to the pseudo header's sum. */
		sum = net_fold(net_pseudo_sum(addr, alen, NET_PROTO_UDP, udp_len));
		memcpy(udp + 6, &sum, 2);
		return;
	}
	if (v4) {
		sum = (uint16_t)~net_ip4_sum(ip);
		memcpy(ip + 10, &sum, 2);
	}
	if (v4 && local->tx_cksum == KVR_CKSUM_NONE)
		return;
	sum = udp_cksum(m, l2 + l3, addr, alen, udp_len);
	memcpy(udp + 6, &sum, 2);
}

#define PLAIN_LEN (NET_ETH_LEN + NET_IP4_LEN + NET_UDP_LEN)

/* Sum of the constant fields of an IPv4 header, in memory byte order. */
#define FIXED_SUM                                                                                  \
	((uint32_t)RTE_STATIC_BSWAP16(0x4500) + RTE_STATIC_BSWAP16(0x4000) +                       \
	 RTE_STATIC_BSWAP16(64 << 8 | NET_PROTO_UDP))

/* Fast path: no tag, IPv4, no checksum offload. The UDP checksum is 0. */
static inline void write_plain(uint8_t *h, const struct kvr_local *local,
			       const struct kvr_path *path, uint32_t udp_len)
{
	const uint16_t total = rte_cpu_to_be_16((uint16_t)(NET_IP4_LEN + udp_len));
	uint32_t from, to;
	uint64_t sum;

	memcpy(&from, local->ip4, 4);
	memcpy(&to, path->ip + 12, 4);
	sum = (uint64_t)from + to + FIXED_SUM + total;
	sum = (sum & UINT32_MAX) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	memcpy(h, path->mac, 6);
	memcpy(h + 6, local->mac, 6);
	put_word(h + 12, RTE_STATIC_BSWAP16(NET_TYPE_IP4) | RTE_STATIC_BSWAP16(0x4500) << 16);
	put_word(h + 16, total);
	put_word(h + 20, RTE_STATIC_BSWAP16(0x4000) |
				 (uint32_t)RTE_STATIC_BSWAP16(64 << 8 | NET_PROTO_UDP) << 16);
	put_half(h + 24, (uint16_t) ~((sum & 0xffff) + (sum >> 16)));
	put_word(h + 26, from);
	put_word(h + 30, to);
	put_half(h + 34, rte_cpu_to_be_16(local->udp_port));
	put_half(h + 36, rte_cpu_to_be_16(path->udp_port));
	put_word(h + 38, rte_cpu_to_be_16((uint16_t)udp_len));
}

static int write_any(const struct kvr_local *local, const struct kvr_path *path, struct rte_mbuf *m)
{
	const bool v4 = path->family == 4;
	const uint32_t payload = m->pkt_len, udp_len = payload + NET_UDP_LEN;
	const uint32_t l3 = v4 ? NET_IP4_LEN : NET_IP6_LEN;
	const uint32_t most = v4 ? local->max_frame4 : local->max_frame6;
	uint32_t l2;
	uint8_t *h;

	if (v4 ? net_is_zero4(local->ip4) : path->family != 6 || net_is_zero(local->ip6, 16))
		return -EAFNOSUPPORT;
	if (payload > most || (path->max_frame != 0 && payload > path->max_frame))
		return -EMSGSIZE;
	h = (uint8_t *)rte_pktmbuf_prepend(m, kvr_path_header_len(path));
	if (h == NULL)
		return -ENOBUFS;
	m->ol_flags &= NET_MEMORY_FLAGS;
	l2 = net_put_l2(h, path, local->mac, v4 ? NET_TYPE_IP4 : NET_TYPE_IP6);
	if (v4)
		put_ip4(h + l2, local, path, NET_IP4_LEN + udp_len);
	else
		put_ip6(h + l2, local, path, udp_len);
	h += l2 + l3;
	net_put16(h, local->udp_port);
	net_put16(h + 2, path->udp_port);
	net_put16(h + 4, udp_len);
	memset(h + 6, 0, 2);
	put_checksums(local, m, l2, l3, udp_len);
	return (int)(l2 + l3 + NET_UDP_LEN);
}

int kvr_path_write(const struct kvr_local *local, const struct kvr_path *path, struct rte_mbuf *m)
{
	const uint32_t payload = m->pkt_len, udp_len = payload + NET_UDP_LEN;
	uint8_t *h;

	if (unlikely(path->family != 4 || (path->vlan | path->vlan_outer) != 0 ||
		     local->tx_cksum == KVR_CKSUM_OFFLOAD || net_is_zero4(local->ip4) ||
		     payload > local->max_frame4 ||
		     (path->max_frame != 0 && payload > path->max_frame) ||
		     m->data_off < PLAIN_LEN))
		return write_any(local, path, m);
	m->data_off = (uint16_t)(m->data_off - PLAIN_LEN);
	m->data_len = (uint16_t)(m->data_len + PLAIN_LEN);
	m->pkt_len += PLAIN_LEN;
	m->ol_flags &= NET_MEMORY_FLAGS;
	h = rte_pktmbuf_mtod(m, uint8_t *);
	write_plain(h, local, path, udp_len);
	if (local->tx_cksum == KVR_CKSUM_SOFTWARE)
		put_half(h + PLAIN_LEN - 2,
			 udp_cksum(m, PLAIN_LEN - NET_UDP_LEN, h + NET_ETH_LEN + 12, 4, udp_len));
	return PLAIN_LEN;
}
