/* SPDX-License-Identifier: BSD-3-Clause */
/* Input of sizes_derive() from the configuration. */
#include "config/config.h"
#include "config/sizes.h"

#include <string.h>

#include <rte_mbuf.h>

#include "kvr_wire.h"

#define HEADERS6 48u /* IPv6 and UDP */
/* Bursts of frames held by an ingress lcore: one received, one being sent, one of answers. */
#define BURSTS 3u

/* Drivers round descriptors; net_af_xdp fills a ring of its own. */
static uint32_t driver_keeps(const struct kvr_port_conf *p)
{
	return strncmp(p->device, "net_af_xdp", strlen("net_af_xdp")) == 0 ? 4096 : 64;
}

/* As create_pool() of lib/port. */
uint32_t kvr_router_buffer_bytes(const struct kvr_port_conf *p)
{
	const uint32_t frame = RTE_MAX(RTE_ALIGN_CEIL(p->mtu + 32u, 64u), 2048u);

	return RTE_PKTMBUF_HEADROOM + frame + (uint32_t)sizeof(struct rte_mbuf) +
	       RTE_CACHE_LINE_SIZE;
}

int kvr_router_conf_sizes(struct kvr_router_conf *conf, char *err, size_t errlen)
{
	const uint32_t joins = conf->n_ingress > 1 ? conf->n_ingress : 0;
	struct sizes_in in = {
		.n_ports = conf->n_ports,
		.n_ingress = conf->n_ingress,
		.n_pools = conf->n_pools,
		/* Mailbox and event ring of each pool, egress ring of each ingress lcore, rings for
		   forwarded fragments. Frames to control are copied, and control sends from a pool
		   of its own. */
		.rings = 2 * conf->n_pools + conf->n_ingress + joins,
		.joins = joins,
		.apart = conf->n_lcores > conf->n_ingress,
		.max_frame = KVR_WIRE_MAX_FRAME,
		.memory_mb = conf->opt.memory_mb,
		.ring_size = conf->opt.ring_size,
		.reassembly_frames = conf->opt.reassembly_frames,
		.reassembly_source_frames = conf->opt.reassembly_source_frames,
		.waiting_frames = conf->opt.waiting_frames,
	};
	uint32_t sending = 0;

	/* A frame may wait in the transmit ring of any port. */
	for (uint32_t i = 0; i < conf->n_ports; i++)
		sending += conf->n_ingress * conf->port[i].port.tx_descriptors;
	for (uint32_t i = 0; i < conf->n_ports; i++) {
		const struct kvr_port_conf *p = &conf->port[i].port;

		in.port[i] = conf->port[i].name;
		in.mbufs[i] = p->mbufs;
		in.buffer[i] = kvr_router_buffer_bytes(p);
		in.device[i] = conf->n_ingress * (p->rx_descriptors + driver_keeps(p)) + sending +
			       (conf->n_lcores + 1) * (p->mbuf_cache * 3 / 2) +
			       conf->n_ingress * BURSTS * KVR_PORT_BURST +
			       kvr_port_ring_frames(conf->n_ingress);
		in.max_frame = RTE_MIN(in.max_frame, p->mtu - HEADERS6);
	}
	return sizes_derive(&in, &conf->sizes, err, errlen);
}
