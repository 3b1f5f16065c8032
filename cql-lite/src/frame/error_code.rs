//! The codes of ERROR messages. Drivers choose their reaction by code, so each failure must use the right one.

use std::fmt;

/// The code of an ERROR message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ErrorCode {
    ServerError = 0x0000,
    Protocol = 0x000A,
    BadCredentials = 0x0100,
    Unavailable = 0x1000,
    Overloaded = 0x1001,
    Bootstrapping = 0x1002,
    Truncate = 0x1003,
    WriteTimeout = 0x1100,
    ReadTimeout = 0x1200,
    ReadFailure = 0x1300,
    FunctionFailure = 0x1400,
    WriteFailure = 0x1500,
    CdcWriteFailure = 0x1600,
    CasWriteUnknown = 0x1700,
    Syntax = 0x2000,
    Unauthorized = 0x2100,
    Invalid = 0x2200,
    Config = 0x2300,
    AlreadyExists = 0x2400,
    Unprepared = 0x2500,
    /// ScyllaDB's, for clients that have negotiated it.
    RateLimit = 0x4321,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 21] = [
        Self::ServerError,
        Self::Protocol,
        Self::BadCredentials,
        Self::Unavailable,
        Self::Overloaded,
        Self::Bootstrapping,
        Self::Truncate,
        Self::WriteTimeout,
        Self::ReadTimeout,
        Self::ReadFailure,
        Self::FunctionFailure,
        Self::WriteFailure,
        Self::CdcWriteFailure,
        Self::CasWriteUnknown,
        Self::Syntax,
        Self::Unauthorized,
        Self::Invalid,
        Self::Config,
        Self::AlreadyExists,
        Self::Unprepared,
        Self::RateLimit,
    ];

    /// The code with this number.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// The number on the wire.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The name used in documentation and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerError => "SERVER_ERROR",
            Self::Protocol => "PROTOCOL_ERROR",
            Self::BadCredentials => "BAD_CREDENTIALS",
            Self::Unavailable => "UNAVAILABLE",
            Self::Overloaded => "OVERLOADED",
            Self::Bootstrapping => "IS_BOOTSTRAPPING",
            Self::Truncate => "TRUNCATE_ERROR",
            Self::WriteTimeout => "WRITE_TIMEOUT",
            Self::ReadTimeout => "READ_TIMEOUT",
            Self::ReadFailure => "READ_FAILURE",
            Self::FunctionFailure => "FUNCTION_FAILURE",
            Self::WriteFailure => "WRITE_FAILURE",
            Self::CdcWriteFailure => "CDC_WRITE_FAILURE",
            Self::CasWriteUnknown => "CAS_WRITE_UNKNOWN",
            Self::Syntax => "SYNTAX_ERROR",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::Invalid => "INVALID",
            Self::Config => "CONFIG_ERROR",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::Unprepared => "UNPREPARED",
            Self::RateLimit => "RATE_LIMIT_ERROR",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
