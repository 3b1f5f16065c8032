//! Roles, users and permissions.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{
        AddIdentity, AlterRole, CreateRole, DropIdentity, DropRole, Grant, GrantRole, GrantedPermission,
        GrantedPermissions, Identifier, ListPermissions, ListRoles, Permission, PermissionSet, Resource,
        Revoke, RevokeRole, RoleOption, RoleSpelling, Statement,
    },
    error::SyntaxError,
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    fn role_name(&mut self) -> Result<Identifier> {
        match self.peek() {
            TokenKind::String | TokenKind::DollarString => self.string().map(Identifier::quoted),
            TokenKind::Symbol(Symbol::Question) => {
                Err(SyntaxError::Rule("Bind variables cannot be used for role names".into()))
            }
            _ => self.name(),
        }
    }

    /// A word, which keeps its case, or a string.
    fn word_or_string(&mut self, refusal: &str) -> Result<String> {
        match self.peek() {
            TokenKind::Word => {
                let token = self.advance();
                Ok(self.text_of(token).to_owned())
            }
            TokenKind::String | TokenKind::DollarString => self.string(),
            TokenKind::QuotedName => Err(SyntaxError::Rule(refusal.into())),
            _ => Err(self.no_viable_alternative()),
        }
    }

    fn user_name(&mut self) -> Result<Identifier> {
        let refusal =
            "Quoted strings are are not supported for user names and USER is deprecated, please use ROLE";
        self.word_or_string(refusal).map(Identifier::quoted)
    }

    fn identity(&mut self) -> Result<String> {
        self.word_or_string("Quoted strings are are not supported for identity")
    }

    pub(super) fn create_role(&mut self) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let role = self.role_name()?;
        let options = self.role_options()?;
        Ok(Statement::CreateRole(CreateRole { spelling: RoleSpelling::Role, if_not_exists, role, options }))
    }

    pub(super) fn create_user(&mut self) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let role = self.user_name()?;
        let options = self.user_options()?;
        Ok(Statement::CreateRole(CreateRole { spelling: RoleSpelling::User, if_not_exists, role, options }))
    }

    pub(super) fn alter_role(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        let role = self.role_name()?;
        let options = self.role_options()?;
        Ok(Statement::AlterRole(AlterRole { spelling: RoleSpelling::Role, if_exists, role, options }))
    }

    pub(super) fn alter_user(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        let role = self.user_name()?;
        let options = self.user_options()?;
        Ok(Statement::AlterRole(AlterRole { spelling: RoleSpelling::User, if_exists, role, options }))
    }

    pub(super) fn drop_role(&mut self) -> Result<Statement> {
        let is_user = self.is_keyword(Keyword::User);
        self.advance();
        let if_exists = self.if_exists()?;
        let (spelling, role) = if is_user {
            (RoleSpelling::User, self.user_name()?)
        } else {
            (RoleSpelling::Role, self.role_name()?)
        };
        Ok(Statement::DropRole(DropRole { spelling, if_exists, role }))
    }

    /// `WITH PASSWORD '…'` and `SUPERUSER` or `NOSUPERUSER` of a user.
    fn user_options(&mut self) -> Result<Vec<RoleOption>> {
        let mut options = Vec::new();
        if self.eat_keyword(Keyword::With) {
            let is_generated = self.eat_keyword(Keyword::Generated);
            let is_hashed = !is_generated && self.eat_keyword(Keyword::Hashed);
            self.expect_keyword(Keyword::Password)?;
            options.push(if is_generated {
                RoleOption::GeneratedPassword
            } else if is_hashed {
                RoleOption::HashedPassword(self.string()?)
            } else {
                RoleOption::Password(self.string()?)
            });
        }
        if self.eat_keyword(Keyword::Superuser) {
            options.push(RoleOption::Superuser(true));
        } else if self.eat_keyword(Keyword::Nosuperuser) {
            options.push(RoleOption::Superuser(false));
        }
        Ok(options)
    }

    /// `WITH option AND …`, if present.
    fn role_options(&mut self) -> Result<Vec<RoleOption>> {
        if !self.eat_keyword(Keyword::With) {
            return Ok(Vec::new());
        }
        let options = self.and_separated(Self::role_option)?;
        for (at, option) in options.iter().enumerate() {
            let is_same =
                |other: &RoleOption| std::mem::discriminant(other) == std::mem::discriminant(option);
            if options.iter().skip(at + 1).any(is_same) {
                return Err(SyntaxError::Rule(format!(
                    "Multiple definition for property '{}'",
                    option.name().to_uppercase()
                )));
            }
        }
        let has = |is: fn(&RoleOption) -> bool| options.iter().any(is);
        let passwords = [
            (has(|option| matches!(option, RoleOption::Password(_))), "password"),
            (has(|option| matches!(option, RoleOption::HashedPassword(_))), "hashed password"),
            (has(|option| matches!(option, RoleOption::GeneratedPassword)), "generated password"),
        ];
        let mut present = passwords.into_iter().filter_map(|(is_there, name)| is_there.then_some(name));
        if let (Some(one), Some(other)) = (present.next(), present.next()) {
            return Err(SyntaxError::Rule(format!("Options '{one}' and '{other}' are mutually exclusive")));
        }
        Ok(options)
    }

    fn role_option(&mut self) -> Result<RoleOption> {
        let TokenKind::Keyword(keyword) = self.peek() else { return Err(self.no_viable_alternative()) };
        match keyword {
            Keyword::Password => {
                self.advance();
                self.expect(Symbol::Equal)?;
                self.string().map(RoleOption::Password)
            }
            Keyword::Hashed => {
                self.advance();
                self.expect_keyword(Keyword::Password)?;
                self.expect(Symbol::Equal)?;
                self.string().map(RoleOption::HashedPassword)
            }
            Keyword::Generated => {
                self.advance();
                self.expect_keyword(Keyword::Password)?;
                Ok(RoleOption::GeneratedPassword)
            }
            Keyword::Options => {
                self.advance();
                self.expect(Symbol::Equal)?;
                self.property_map().map(RoleOption::Options)
            }
            Keyword::Superuser => {
                self.advance();
                self.expect(Symbol::Equal)?;
                self.boolean().map(RoleOption::Superuser)
            }
            Keyword::Login => {
                self.advance();
                self.expect(Symbol::Equal)?;
                self.boolean().map(RoleOption::Login)
            }
            Keyword::Access => self.access(),
            _ => Err(self.no_viable_alternative()),
        }
    }

    fn boolean(&mut self) -> Result<bool> {
        if self.eat_keyword(Keyword::True) {
            Ok(true)
        } else if self.eat_keyword(Keyword::False) {
            Ok(false)
        } else {
            Err(self.mismatched("BOOLEAN"))
        }
    }

    /// `ACCESS …`
    fn access(&mut self) -> Result<RoleOption> {
        self.advance();
        let is_to = self.eat_keyword(Keyword::To);
        if !is_to {
            self.expect_keyword(Keyword::From)?;
        }
        let places = if is_to { Keyword::Datacenters } else { Keyword::Cidrs };
        let option = if is_to { RoleOption::Datacenters } else { RoleOption::Cidrs };
        if self.eat_keyword(Keyword::All) {
            self.expect_keyword(places)?;
            return Ok(option(None));
        }
        self.expect_keyword(places)?;
        self.expect(Symbol::LeftBrace)?;
        let names = self.comma_separated(Self::string)?;
        self.expect(Symbol::RightBrace)?;
        Ok(option(Some(names)))
    }

    pub(super) fn add_identity(&mut self) -> Result<Statement> {
        self.advance();
        self.expect_keyword(Keyword::Identity)?;
        let if_not_exists = self.if_not_exists()?;
        let identity = self.identity()?;
        self.expect_keyword(Keyword::To)?;
        self.expect_keyword(Keyword::Role)?;
        Ok(Statement::AddIdentity(AddIdentity { if_not_exists, identity, role: self.identity()? }))
    }

    pub(super) fn drop_identity(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        Ok(Statement::DropIdentity(DropIdentity { if_exists, identity: self.identity()? }))
    }

    pub(super) fn grant(&mut self) -> Result<Statement> {
        self.advance();
        if self.is_role_before(Keyword::To) {
            let role = self.role_name()?;
            self.expect_keyword(Keyword::To)?;
            return Ok(Statement::GrantRole(GrantRole { role, grantee: self.role_name()? }));
        }
        let (permissions, resource) = self.permissions_on_resource()?;
        self.expect_keyword(Keyword::To)?;
        Ok(Statement::Grant(Grant { permissions, resource, grantee: self.role_name()? }))
    }

    pub(super) fn revoke(&mut self) -> Result<Statement> {
        self.advance();
        if self.is_role_before(Keyword::From) {
            let role = self.role_name()?;
            self.expect_keyword(Keyword::From)?;
            return Ok(Statement::RevokeRole(RevokeRole { role, grantee: self.role_name()? }));
        }
        let (permissions, resource) = self.permissions_on_resource()?;
        self.expect_keyword(Keyword::From)?;
        Ok(Statement::Revoke(Revoke { permissions, resource, grantee: self.role_name()? }))
    }

    /// Whether a role, rather than permissions, is granted or revoked.
    fn is_role_before(&self, preposition: Keyword) -> bool {
        let is_role = self.is_name() || matches!(self.peek(), TokenKind::String | TokenKind::DollarString);
        let is_permission = self.is_keyword(Keyword::All) || self.permission_here().is_some();
        is_role && (!is_permission || self.is_keyword_at(1, preposition))
    }

    pub(super) fn list(&mut self) -> Result<Statement> {
        self.advance();
        match self.peek() {
            TokenKind::Keyword(Keyword::Users) => {
                self.advance();
                Ok(Statement::ListUsers)
            }
            TokenKind::Keyword(Keyword::Superusers) => {
                self.advance();
                Ok(Statement::ListSuperusers)
            }
            TokenKind::Keyword(Keyword::Roles) => {
                self.advance();
                let of = self.of_role()?;
                Ok(Statement::ListRoles(ListRoles { of, recursive: !self.eat_keyword(Keyword::Norecursive) }))
            }
            _ => {
                let permissions = self.permissions()?;
                let resource = if self.eat_keyword(Keyword::On) { Some(self.resource()?) } else { None };
                let of = self.of_role()?;
                let recursive = !self.eat_keyword(Keyword::Norecursive);
                Ok(Statement::ListPermissions(ListPermissions { permissions, resource, of, recursive }))
            }
        }
    }

    /// `OF role`, if present.
    fn of_role(&mut self) -> Result<Option<Identifier>> {
        if self.eat_keyword(Keyword::Of) { self.role_name().map(Some) } else { Ok(None) }
    }

    fn permission_here(&self) -> Option<Permission> {
        let TokenKind::Keyword(keyword) = self.peek() else { return None };
        Some(match keyword {
            Keyword::Create => Permission::Create,
            Keyword::Alter => Permission::Alter,
            Keyword::Drop => Permission::Drop,
            Keyword::Select => Permission::Select,
            Keyword::Modify => Permission::Modify,
            Keyword::Authorize => Permission::Authorize,
            Keyword::Describe => Permission::Describe,
            Keyword::Execute => Permission::Execute,
            Keyword::Unmask => Permission::Unmask,
            Keyword::SelectMasked => Permission::SelectMasked,
            _ => return None,
        })
    }

    fn permissions(&mut self) -> Result<PermissionSet> {
        if self.eat_keyword(Keyword::All) {
            self.eat_keyword(Keyword::Permissions);
            return Ok(PermissionSet::All);
        }
        self.comma_separated(Self::permission).map(PermissionSet::Some)
    }

    fn permission(&mut self) -> Result<Permission> {
        let permission = self.permission_here().ok_or_else(|| self.no_viable_alternative())?;
        self.advance();
        self.eat_keyword(Keyword::Permission);
        Ok(permission)
    }

    /// `permissions ON resource` of a GRANT or REVOKE.
    fn permissions_on_resource(&mut self) -> Result<(GrantedPermissions, Resource)> {
        let permissions = self.granted_permissions()?;
        self.expect_keyword(Keyword::On)?;
        let resource = self.resource()?;
        let has_columns = matches!(&permissions, GrantedPermissions::Some(permissions)
            if permissions.iter().any(|permission| !permission.columns.is_empty()));
        if has_columns && !matches!(resource, Resource::Table(_)) {
            return Err(SyntaxError::Rule(format!("Only a table has columns, not {resource}")));
        }
        Ok((permissions, resource))
    }

    fn granted_permissions(&mut self) -> Result<GrantedPermissions> {
        if self.eat_keyword(Keyword::All) {
            self.eat_keyword(Keyword::Permissions);
            if self.is(Symbol::LeftParenthesis) {
                return Err(not_by_column("ALL PERMISSIONS"));
            }
            return Ok(GrantedPermissions::All);
        }
        let permissions = self.comma_separated(|parser| {
            let permission = parser.permission()?;
            let mut columns = Vec::new();
            if parser.is(Symbol::LeftParenthesis) {
                if !GrantedPermission::takes_columns(permission) {
                    return Err(not_by_column(permission.name()));
                }
                parser.advance();
                columns = parser.comma_separated(Self::column_name)?;
                parser.expect(Symbol::RightParenthesis)?;
            }
            Ok(GrantedPermission { permission, columns })
        })?;
        Ok(GrantedPermissions::Some(permissions))
    }

    fn resource(&mut self) -> Result<Resource> {
        // These words can also name a table; then no other word follows.
        let followed_by_keyword = matches!(
            self.peek_at(1),
            TokenKind::Keyword(
                Keyword::Keyspaces | Keyword::Tables | Keyword::Roles | Keyword::Functions | Keyword::Mbeans
            )
        );
        let followed_by_name = self.is_name_at(1);
        let followed_by_string = matches!(self.peek_at(1), TokenKind::String | TokenKind::DollarString);
        match self.peek() {
            TokenKind::Keyword(Keyword::All) if followed_by_keyword => self.resource_of_all(),
            TokenKind::Keyword(Keyword::Keyspace | Keyword::Schema) => {
                self.advance();
                self.keyspace_name().map(Resource::Keyspace)
            }
            TokenKind::Keyword(Keyword::Role) if followed_by_name || followed_by_string => {
                self.advance();
                self.role_name().map(Resource::Role)
            }
            TokenKind::Keyword(Keyword::Function)
                if followed_by_name || self.is_keyword_at(1, Keyword::Token) =>
            {
                self.advance();
                let name = self.function_name()?;
                Ok(Resource::Function { name, argument_types: self.type_list()? })
            }
            TokenKind::Keyword(Keyword::Mbean) if followed_by_string => {
                self.advance();
                self.string().map(Resource::Mbean)
            }
            TokenKind::Keyword(Keyword::Mbeans) if followed_by_string => {
                self.advance();
                self.string().map(Resource::Mbeans)
            }
            _ => {
                if !self.eat_keyword(Keyword::Table) {
                    self.eat_keyword(Keyword::Columnfamily);
                }
                self.table_name().map(Resource::Table)
            }
        }
    }

    /// `ALL …`
    fn resource_of_all(&mut self) -> Result<Resource> {
        self.advance();
        let kind = self.advance().kind;
        match kind {
            TokenKind::Keyword(Keyword::Keyspaces) => Ok(Resource::AllKeyspaces),
            TokenKind::Keyword(Keyword::Roles) => Ok(Resource::AllRoles),
            TokenKind::Keyword(Keyword::Mbeans) => Ok(Resource::AllMbeans),
            TokenKind::Keyword(Keyword::Functions) if !self.is_keyword(Keyword::In) => {
                Ok(Resource::AllFunctions)
            }
            _ => {
                self.expect_keyword(Keyword::In)?;
                self.expect_keyword(Keyword::Keyspace)?;
                let keyspace = self.keyspace_name()?;
                Ok(if kind == TokenKind::Keyword(Keyword::Tables) {
                    Resource::AllTables(keyspace)
                } else {
                    Resource::AllFunctionsIn(keyspace)
                })
            }
        }
    }
}

fn not_by_column(permissions: &str) -> SyntaxError {
    SyntaxError::Rule(format!("Only SELECT and MODIFY can be for columns, not {permissions}"))
}
