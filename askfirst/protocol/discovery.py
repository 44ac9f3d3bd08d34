"""What a service says about itself at ``/.well-known/hitl.json``."""

from typing import Literal

from askfirst.protocol.wire import Count, Flag, Opt, Positive, Text, Uri, Wire

Transport = Literal["polling", "sse", "callback"]


class ServiceInfo(Wire):
    """Who runs the service."""

    name: Opt[Text] = None
    description: Opt[Text] = None
    url: Opt[Uri] = None
    logo_url: Opt[Uri] = None
    contact: Opt[Text] = None


class Capabilities(Wire):
    """What the service can do."""

    review_types: Opt[list[Text]] = None
    transports: Opt[list[Transport]] = None
    max_timeout: Opt[Text] = None
    default_timeout: Opt[Text] = None
    supports_reminders: Opt[Flag] = None
    supports_multi_round: Opt[Flag] = None
    supports_signatures: Opt[Flag] = None
    supports_inline_submit: Opt[Flag] = None
    supports_agent_binding: Opt[Flag] = None
    supports_surface: Opt[Flag] = None
    surface_formats: Opt[list[Text]] = None
    surface_profiles: Opt[list[Text]] = None


class Endpoints(Wire):
    """Where the service is found."""

    reviews_base: Opt[Uri] = None
    review_page_base: Opt[Uri] = None
    events_base: Opt[Uri] = None
    well_known: Opt[Uri] = None


class Authentication(Wire):
    """How an agent shows who it is."""

    type: Opt[Text] = None
    token_url: Opt[Uri] = None
    scopes: Opt[list[Text]] = None
    profiles: Opt[list[Text]] = None
    well_known: Opt[Uri] = None
    documentation: Opt[Uri] = None


class RateLimits(Wire):
    """How often an agent may ask."""

    poll_min_interval_seconds: Opt[Positive] = None
    poll_recommended_interval_seconds: Opt[Positive] = None
    max_active_cases_per_agent: Opt[Positive] = None
    max_requests_per_minute: Opt[Positive] = None


class Policies(Wire):
    """What the service keeps, and under which terms."""

    data_retention_days: Opt[Count] = None
    expired_case_retention_days: Opt[Count] = None
    privacy_policy: Opt[Uri] = None
    terms_of_service: Opt[Uri] = None


class FurtherReading(Wire):
    """Where more is written."""

    documentation: Opt[Uri] = None
    openapi: Opt[Uri] = None


class ServiceDescription(Wire):
    """Everything a service says about itself."""

    spec_version: Literal["0.8"]
    service: Opt[ServiceInfo] = None
    capabilities: Opt[Capabilities] = None
    endpoints: Opt[Endpoints] = None
    authentication: Opt[Authentication] = None
    rate_limits: Opt[RateLimits] = None
    policies: Opt[Policies] = None
    examples: Opt[FurtherReading] = None


class Discovery(Wire):
    """The document at ``/.well-known/hitl.json``."""

    hitl_protocol: ServiceDescription
