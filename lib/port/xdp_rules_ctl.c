/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rules of the XDP program, written to its maps by the control thread: addresses, allow-list, rate.
 */
#include "port_pvt.h"

#include <errno.h>
#include <string.h>

#include <bpf/bpf.h>
#include <rte_byteorder.h>

#include "kvroute_xdp.h"

static struct kvr_xdp_prefix make_key(const struct kvr_prefix *r)
{
	struct kvr_xdp_prefix key = {0};

	key.len = (uint32_t)(__builtin_popcountll(r->mask[0]) + __builtin_popcountll(r->mask[1]));
	memcpy(key.ip.b, r->addr, 16);
	return key;
}

struct keys {
	struct kvr_xdp_prefix k[KVR_XDP_ALLOW];
	uint32_t n;
};

static void in_map(const struct kvr_port *port, struct keys *m)
{
	m->n = 0;
	while (m->n < KVR_XDP_ALLOW &&
	       bpf_map_get_next_key(port->xdp.allow, m->n != 0 ? &m->k[m->n - 1] : NULL,
				    &m->k[m->n]) == 0)
		m->n++;
}

static bool keys_contain(const struct keys *m, const struct kvr_xdp_prefix *key)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (memcmp(&m->k[i], key, sizeof(*key)) == 0)
			return true;
	return false;
}

/*
 * Existing elements are not written again: Linux before 6.13 rejects an update of a full map, which
 * it is between two full lists.
 */
int kvr_port__xdp_allow(const struct kvr_port *port)
{
	const uint32_t yes = 1;
	struct keys before;

	in_map(port, &before);
	for (uint32_t i = 0; i < port->rules.n_allow; i++) {
		const struct kvr_xdp_prefix key = make_key(&port->rules.allow[i]);
		const int rc = keys_contain(&before, &key)
				       ? 0
				       : bpf_map_update_elem(port->xdp.allow, &key, &yes, BPF_ANY);

		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Delete the prefixes of the former list. */
static int forget_others(const struct kvr_port *port)
{
	struct keys now, list = {.n = port->rules.n_allow};
	int rc = 0;

	for (uint32_t i = 0; i < list.n; i++)
		list.k[i] = make_key(&port->rules.allow[i]);
	in_map(port, &now);
	for (uint32_t i = 0; rc == 0 && i < now.n; i++)
		if (!keys_contain(&list, &now.k[i]))
			rc = bpf_map_delete_elem(port->xdp.allow, &now.k[i]);
	return rc;
}

static struct kvr_xdp_conf make_conf(const struct kvr_port *port, bool on)
{
	const struct kvr_port_conf *c = &port->conf;
	struct kvr_xdp_conf v = {.on = on,
				 .udp_port = rte_cpu_to_be_16((uint16_t)c->udp_port),
				 .vlan = (uint16_t)c->vlan,
				 .has4 = c->ipv4[0] != '\0',
				 .has6 = c->ipv6[0] != '\0',
				 .restricted = port->rules.n_allow != 0};

	memcpy(v.ip4, port->rules.local.ip4, 4);
	memcpy(v.ip6, port->rules.local.ip6, 16);
	if (c->xdp_rate != 0) {
		v.gap_ns = RTE_MAX(1000000000u / c->xdp_rate, 1u);
		v.burst_ns = v.gap_ns * (c->xdp_burst - 1);
	}
	return v;
}

int kvr_port_xdp_redirect(struct kvr_port *port, bool on)
{
	const struct kvr_xdp_conf v = make_conf(port, on);
	const uint32_t zero = 0;

	if (!port->xdp.used || port->xdp.conf <= 0)
		return -ENOTSUP;
	return bpf_map_update_elem(port->xdp.conf, &zero, &v, BPF_ANY);
}

int kvr_port_xdp_redirects(const struct kvr_port *port)
{
	struct kvr_xdp_conf v;
	const uint32_t zero = 0;
	int rc;

	if (!port->xdp.used || port->xdp.conf <= 0)
		return -ENOTSUP;
	rc = bpf_map_lookup_elem(port->xdp.conf, &zero, &v);
	return rc < 0 ? rc : v.on != 0;
}

/* Between the steps both lists are in effect. */
int kvr_port__xdp_tune(struct kvr_port *port)
{
	int rc;

	if (!port->xdp.used || port->xdp.conf <= 0)
		return 0;
	rc = kvr_port__xdp_allow(port);
	if (rc == 0)
		rc = kvr_port_xdp_redirects(port);
	if (rc >= 0)
		rc = kvr_port_xdp_redirect(port, rc != 0);
	return rc != 0 ? rc : forget_others(port);
}
